"""Where prepared weights are kept: derived from models, safe to delete at any time, made again when missing."""

import shutil
import time
from pathlib import Path

import xxhash

from ..home import models_folder

STALE_SECONDS = 24 * 3600


def prepared_path(source: Path, form: str) -> Path:
    """The file for one form ("dense-bfloat16") of the model at `source`; models are told apart by their full path."""
    return models_folder() / "prepared" / f"{_stem(source)}-{form}.safetensors"


def prepared_files(source: Path) -> list[Path]:
    """All that was prepared from the model at `source`."""
    return sorted((models_folder() / "prepared").glob(f"{_stem(source)}-*"))


def _stem(source: Path) -> str:
    where = source.expanduser().resolve()
    readable = "".join(letter if letter.isalnum() or letter in "._" else "_" for letter in where.stem)[:48]
    return f"{readable}-{xxhash.xxh3_64_hexdigest(str(where).encode())}"


def remove_stale(folder: Path, pattern: str) -> None:
    """Removes half files and work folders whose process was killed; those of a living one are younger than a day."""
    for path in folder.glob(pattern):
        try:
            if time.time() - path.stat().st_mtime < STALE_SECONDS:
                continue
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink()
        except OSError:  # gone meanwhile, or not ours: it is only in the way
            continue
