"""Connections that read the database of chats, beside the writer and beside each other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, LifoQueue
from sqlite3 import Connection

from .database import connect, errors_in_words
from .errors import StoreUnavailable

MAX_IDLE = 8


class Readers:
    """Hands out connections that see the database as it was when the reading began, whatever is written meanwhile."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._idle: LifoQueue[Connection] = LifoQueue()
        self._is_closed = False

    @contextmanager
    def snapshot(self) -> Iterator[Connection]:
        """A connection for one reading; raises StoreBusy, StoreDamaged or StoreUnavailable."""
        with errors_in_words(self._path):
            connection = self._take()
            try:
                connection.execute("BEGIN")
                yield connection
            finally:
                connection.execute("ROLLBACK")
                self._give_back(connection)

    def close(self) -> None:
        """Closes what is idle now, and what is in use once it is given back."""
        self._is_closed = True
        while (connection := self._next_idle()) is not None:
            connection.close()

    def _take(self) -> Connection:
        if self._is_closed:
            raise StoreUnavailable(f"the chats in {self._path} are closed already")
        connection = self._next_idle()
        if connection is None:
            connection = connect(self._path)
            connection.execute("PRAGMA query_only = ON")
        return connection

    def _give_back(self, connection: Connection) -> None:
        if self._is_closed or self._idle.qsize() >= MAX_IDLE:
            connection.close()
        else:
            self._idle.put(connection)

    def _next_idle(self) -> Connection | None:
        try:
            return self._idle.get_nowait()
        except Empty:
            return None
