"""Connections that read the database of chats, beside the writer and beside each other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from sqlite3 import Connection
from threading import Lock

from ..errors import StoreUnavailable
from .database import connect, errors_in_words
from .database_file import DatabaseFile

MAX_IDLE = 8


class Readers:
    """Hands out connections that see the database as it was when the reading began, whatever is written meanwhile."""

    def __init__(self, file: DatabaseFile) -> None:
        self._file = file
        self._path = file.path
        self._lock = Lock()
        self._idle: list[Connection] = []
        self._is_closed = False

    @contextmanager
    def snapshot(self) -> Iterator[Connection]:
        """A connection for one reading; raises StoreBusy, StoreDamaged or StoreUnavailable."""
        with errors_in_words(self._path):
            self._file.check()
            connection = self._take()
            try:
                connection.execute("BEGIN")
                yield connection
            finally:
                connection.rollback()
                self._give_back(connection)

    def close(self) -> None:
        """Closes what is idle now, and what is in use once it is given back."""
        with self._lock:
            self._is_closed = True
            while self._idle:
                self._idle.pop().close()

    def _take(self) -> Connection:
        with self._lock:
            if self._is_closed:
                raise StoreUnavailable(f"the chats in {self._path} are closed already")
            if self._idle:
                return self._idle.pop()
        connection = connect(self._path)
        connection.execute("PRAGMA query_only = ON")
        return connection

    def _give_back(self, connection: Connection) -> None:
        with self._lock:
            if self._is_closed or len(self._idle) == MAX_IDLE:
                connection.close()
            else:
                self._idle.append(connection)
