"""What killed processes left behind: half files and work folders."""

import shutil
import time
from pathlib import Path

STALE_SECONDS = 24 * 3600


def remove_stale(folder: Path, pattern: str) -> None:
    """Removes what matches `pattern` and is older than a day; what a living process works on is younger."""
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
