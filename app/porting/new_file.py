"""A file that a person asked for, there whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from paged_chat.engine.whole_file import whole_file

from ..errors import ExportRefused


@contextmanager
def new_file(path: Path, *, overwrite: bool = False) -> Iterator[TextIO]:
    """Opens a text file for writing that appears at `path`, readable by its owner, once it is written to its end.

    Raises ExportRefused where there is one already and `overwrite` is off, and where it can't be written.
    """
    try:
        if not overwrite:
            refuse_existing(path)
        with whole_file(path) as out:
            yield out
    except OSError as error:
        is_lost = isinstance(error, FileNotFoundError) and not path.parent.is_dir()
        reason = f"there is no folder {path.parent}" if is_lost else error.strerror
        raise ExportRefused(f"{path} can't be written: {reason}") from error


def refuse_existing(path: Path) -> None:
    """Raises ExportRefused where something has that name."""
    if os.path.lexists(path):
        raise ExportRefused(f"{path} is there already; --force writes over it")
