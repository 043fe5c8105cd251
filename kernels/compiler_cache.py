"""The folder in which Numba keeps compiled kernels."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import platformdirs

logger = logging.getLogger(__name__)

KERNELS = Path(__file__).parent / "cpu"


def folders_of_numba() -> list[Path]:
    """Where Numba looks for one that it can write to, in its order."""
    named = os.environ.get("NUMBA_CACHE_DIR")
    own = [KERNELS / "__pycache__", platformdirs.user_cache_path("numba", appauthor=False)]
    return [Path(named), *own] if named else own


def survive_full_disk() -> None:
    """From now on a kernel that can't be kept, or read back, is compiled and used; the next start compiles it again.

    Numba raises what the system says of a full disk out of the kernel's first call. It has one place where it forgives
    such errors, on Windows alone.
    """
    from numba.core.caching import Cache

    Cache._guard_against_spurious_io_errors = _forgive_the_disk


@contextmanager
def _forgive_the_disk(_cache: object) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        logger.warning("a compiled kernel can't be kept or read back: %s", error)


def keep_in(folder: Path) -> None:
    """Has Numba look there first. Only what is compiled from now on is kept there."""
    from numba import config

    config.CACHE_DIR = str(folder)
