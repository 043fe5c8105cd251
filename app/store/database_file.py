"""The file that a store has open, told from another one that has taken its name."""

from __future__ import annotations

from ..errors import StoreUnavailable
from .database import IN_MEMORY, StorePath


class DatabaseFile:
    """Known by what it is, not by what it is called.

    SQLite goes on with the file that it opened. Were that one deleted, or a copy laid over it, all that is written from
    then on would go nowhere, and a new connection would mix the log of the one with the pages of the other.
    """

    def __init__(self, path: StorePath) -> None:
        """`path`: where it has just been opened."""
        self.path = path
        self._identity = self._look()

    def check(self) -> None:
        """Raises StoreUnavailable where another file has its name now, or none; costs microseconds."""
        if self._look() != self._identity:
            raise StoreUnavailable(
                f"{self.path} was moved, deleted or replaced while it was open, so nothing can be saved in it: put it "
                "back, or start the program again to go on with what is there now"
            )

    def _look(self) -> tuple[int, int] | None:
        if self.path == IN_MEMORY:
            return None
        try:
            status = self.path.stat()
        except FileNotFoundError:
            return None
        return status.st_dev, status.st_ino
