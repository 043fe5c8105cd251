"""Where compiled kernels are kept: without such a folder each start compiles for a minute or two."""

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path

from ..kernels.compiler_cache import folders_of_numba, keep_in, survive_full_disk
from .home import cache_folder, can_write


def folder_of_numba() -> Path | None:
    """The one that Numba takes by itself; None where it can write to none, and would fail."""
    return next((folder for folder in folders_of_numba() if can_write(folder)), None)


@cache
def keep_compiled_kernels() -> None:
    """Before anything is compiled: gives Numba a folder of ours where it has none of its own.

    A program that was installed by root and runs as a user without a home is such a case. Where our folder can't be
    written either, what is compiled serves this process alone; so it does where the disk is full.
    """
    survive_full_disk()
    if folder_of_numba() is not None:
        return
    folder = cache_folder() / "kernels"
    if not can_write(folder):
        folder = Path(tempfile.mkdtemp(prefix="paged-chat-kernels-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    keep_in(folder)
