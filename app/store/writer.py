"""The one thread that writes to the database of chats."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from sqlite3 import Connection
from typing import TypeVar

from ..errors import StoreUnavailable
from .database import StorePath, errors_in_words, open_database, write_transaction
from .database_file import DatabaseFile

Result = TypeVar("Result")


class Writer:
    """Runs each write in a transaction of its own, one after the other, in the order in which they were asked for.

    A write whose transaction fails leaves nothing behind and can be asked for again.
    """

    def __init__(self, path: StorePath) -> None:
        """Opens, makes or migrates the database; raises what `open_database` raises."""
        self._path = path
        self._connection = open_database(path)
        self.file = DatabaseFile(path)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="chats-writer")

    def run(self, write: Callable[[Connection], Result]) -> Result:
        """Calls `write` and returns its result once it is committed; any thread but the writer's may call.

        Raises what `write` raises, StoreBusy, DiskFull, StoreDamaged or StoreUnavailable.
        """
        try:
            result = self._thread.submit(self._transaction, write)
        except RuntimeError as error:
            raise StoreUnavailable(f"the chats in {self._path} are closed already; nothing was saved now") from error
        return result.result()

    def close(self) -> None:
        """Ends what was asked for before and lets go of the file; a second call does nothing."""
        self._thread.shutdown(wait=True)
        self._connection.close()

    def _transaction(self, write: Callable[[Connection], Result]) -> Result:
        with errors_in_words(self._path):
            self.file.check()
            with write_transaction(self._connection):
                return write(self._connection)
