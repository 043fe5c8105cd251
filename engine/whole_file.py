"""Text files that are there whole or not at all."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO


@contextmanager
def whole_file(path: Path) -> Iterator[TextIO]:
    """Opens a file for writing that appears at `path`, readable by its owner, once it is written to its end.

    What stood there is replaced in one step; on failure nothing is left behind. Raises OSError.
    """
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:40]}.")
    try:
        with open(descriptor, "w", encoding="utf-8", newline="") as file:
            yield file
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
