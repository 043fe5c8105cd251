"""Files that are there whole or not at all."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, TextIO


@contextmanager
def whole_file(path: Path) -> Iterator[TextIO]:
    """Opens a text file for writing that appears at `path`, readable by its owner, once it is written to its end.

    What stood there is replaced in one step; on failure nothing is left behind. Raises OSError.
    """
    with (
        _named_at_the_end(path, f".{path.name[:40]}.") as descriptor,
        open(descriptor, "w", encoding="utf-8", newline="") as file,
    ):
        yield file


@contextmanager
def whole_binary_file(path: Path, prefix: str) -> Iterator[BinaryIO]:
    """As `whole_file`, of bytes. Until then its name begins with `prefix`, which tells what a dead process left."""
    with _named_at_the_end(path, prefix) as descriptor, open(descriptor, "wb") as file:
        yield file


@contextmanager
def _named_at_the_end(path: Path, prefix: str) -> Iterator[int]:
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=prefix)
    try:
        yield descriptor
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
