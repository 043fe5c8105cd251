"""The folder in which Numba keeps compiled kernels."""

import os
from pathlib import Path

import platformdirs

KERNELS = Path(__file__).parent / "cpu"


def folders_of_numba() -> list[Path]:
    """Where Numba looks for one that it can write to, in its order."""
    named = os.environ.get("NUMBA_CACHE_DIR")
    own = [KERNELS / "__pycache__", platformdirs.user_cache_path("numba", appauthor=False)]
    return [Path(named), *own] if named else own


def keep_in(folder: Path) -> None:
    """Has Numba look there first. Only what is compiled from now on is kept there."""
    from numba import config

    config.CACHE_DIR = str(folder)
