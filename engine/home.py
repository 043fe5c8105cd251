"""Where models, chats and settings live on this machine."""

import contextlib
import os
import tempfile
from pathlib import Path

import platformdirs
import xxhash


def home() -> Path:
    """The folder named by PAGED_CHAT_HOME, or the system's place for a user's data; made private where it is new.

    One that can't be made is reported by whoever has to write there: much works without. Whoever asks whether something
    is in it asks os.path: pathlib raises where a name is too long, or a folder above it isn't ours to enter.
    """
    chosen = os.environ.get("PAGED_CHAT_HOME")
    # pathlib's `expanduser` raises where ~name is nobody.
    path = os.path.expanduser(chosen) if chosen else platformdirs.user_data_dir("paged-chat", appauthor=False)
    return _made(Path(path).absolute())


def models_folder() -> Path:
    """Downloaded models, and what was prepared from models."""
    return _made(home() / "models")


def cache_folder() -> Path:
    """What can be found out or made again."""
    return _made(home() / "cache")


def prepared_folder(source: Path) -> Path:
    """What was made once from a model's files and is kept: its converted tokenizer, its weights as they are used."""
    path = source.absolute()
    return models_folder() / "prepared" / f"{path.stem}-{xxhash.xxh3_64_hexdigest(str(path).encode())}"


def can_write(folder: Path) -> bool:
    """Whether files can be made in a folder, or in the nearest one above it that is there; leaves no trace.

    It tries, because rights don't tell: root has all of them, and a disk can be mounted for reading alone.
    """
    nearest = next((one for one in (folder, *folder.absolute().parents) if os.path.exists(one)), folder)
    try:
        with tempfile.TemporaryFile(dir=nearest):
            return True
    except OSError:
        return False


def _made(folder: Path) -> Path:
    with contextlib.suppress(OSError):
        # Chats are nobody else's to read.
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder
