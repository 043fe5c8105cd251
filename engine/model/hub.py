"""Models of the Hugging Face hub, in the cache that its own library keeps and other programs share."""

import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import DownloadFailed, ModelFileInvalid, ModelNotFound
from ..progress import LoadProgress, OnProgress

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")
POLL_SECONDS = 0.2
# Never pickle: a *.bin can't come along. Folders inside a repository hold other formats of the same weights.
ALLOWED_FILES = ("*.safetensors", "*.json", "*.jinja", "*.model", "*.txt")
IGNORED_FILES = ("*/*", "consolidated*.safetensors")


def hub_cache() -> Path:
    """Where the library keeps its downloads, by the variables that it reads, without importing it."""
    if cache := os.environ.get("HF_HUB_CACHE"):
        return Path(cache).expanduser()
    default_home = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")) / "huggingface"
    return Path(os.environ.get("HF_HOME", default_home)).expanduser() / "hub"


def repository_folder(hub_id: str) -> Path:
    return hub_cache() / f"models--{hub_id.replace('/', '--')}"


def cached_snapshot(hub_id: str) -> Path | None:
    """The folder of a repository's main branch as it was last fetched, where all that a model needs is in it."""
    repository = repository_folder(hub_id)
    try:
        commit = (repository / "refs" / "main").read_text().strip()
    except OSError:
        return None
    snapshot = repository / "snapshots" / commit
    return snapshot if re.fullmatch(r"[0-9a-f]{8,64}", commit) and _is_whole(snapshot) else None


def fetch_snapshot(hub_id: str, on_progress: OnProgress) -> Path:
    """Downloads what is new on the main branch and gives the folder.

    An interrupted download is resumed by the next; its half files are never taken for whole ones.
    Raises ModelNotFound for a repository that doesn't exist or that this user may not see, DownloadFailed else.
    """
    import huggingface_hub
    from huggingface_hub.errors import GatedRepoError, HFValidationError, RepositoryNotFoundError

    try:
        with _reported(repository_folder(hub_id), on_progress):
            folder = huggingface_hub.snapshot_download(
                hub_id, allow_patterns=list(ALLOWED_FILES), ignore_patterns=list(IGNORED_FILES)
            )
    except GatedRepoError as error:
        raise DownloadFailed(
            f"{hub_id} asks for consent: accept its terms on its page of the hub, then run `hf auth login`"
        ) from error
    except (RepositoryNotFoundError, HFValidationError) as error:
        raise ModelNotFound(
            f"the Hugging Face hub has no public model {hub_id!r}, and there is no folder of that name; "
            "for a private one run `hf auth login` first"
        ) from error
    except (OSError, ValueError, RuntimeError) as error:
        # Connection faults of this library are OSErrors; its first line says which.
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
        reason = reason.removeprefix("Got: ").removesuffix(".")
        raise DownloadFailed(
            f"{hub_id} couldn't be fetched from the Hugging Face hub: {reason}. Check the network and the free space, "
            "or fetch the repository on another machine and give its folder as the model"
        ) from error
    if not _is_whole(Path(folder)):
        raise DownloadFailed(
            f"{hub_id} holds no config.json with safetensors weights; where it holds .gguf files, download one and "
            "give its path as the model"
        )
    return Path(folder)


def _is_whole(folder: Path) -> bool:
    from .safetensors import weight_files

    try:
        return (folder / "config.json").is_file() and bool(weight_files(folder))
    except ModelFileInvalid:
        return False


@contextmanager
def _reported(repository: Path, on_progress: OnProgress) -> Iterator[None]:
    """Reports how many bytes of the repository are on the disk, while the library downloads on its own threads."""
    done = threading.Event()

    def report() -> None:
        while not done.wait(POLL_SECONDS):
            arrived = 0
            for folder, _, names in os.walk(repository / "blobs"):
                for name in names:
                    try:
                        arrived += os.stat(os.path.join(folder, name)).st_size
                    except OSError:  # renamed between the two calls
                        continue
            on_progress(LoadProgress("download", arrived, None))

    reporter = threading.Thread(target=report, name="hub-progress", daemon=True)
    reporter.start()
    try:
        yield
    finally:
        done.set()
        reporter.join()
