"""The two places where chats live: the database on disk, and one in memory for temporary chats."""

from __future__ import annotations

import threading

from ..store.database import IN_MEMORY
from ..store.store import Store


class Stores:
    """Finds a chat's store by its id; ids of chats and messages are unique over both."""

    def __init__(self, on_disk: Store) -> None:
        self.on_disk = on_disk
        self._lock = threading.Lock()
        self._in_memory: Store | None = None  # opened with the first temporary chat
        self._temporary_ids: set[str] = set()

    def of(self, chat_id: str) -> Store:
        """The one on disk also for a chat that is in neither: it says so when it is asked."""
        with self._lock:
            return self._in_memory if self._in_memory is not None and chat_id in self._temporary_ids else self.on_disk

    @property
    def in_memory(self) -> Store | None:
        with self._lock:
            return self._in_memory

    def open_in_memory(self) -> Store:
        with self._lock:
            if self._in_memory is None:
                self._in_memory = Store(IN_MEMORY)
            return self._in_memory

    def mark_temporary(self, chat_id: str) -> None:
        """It was made in memory."""
        with self._lock:
            self._temporary_ids.add(chat_id)

    def close(self) -> None:
        """Forgets temporary chats; the store on disk is its opener's to close."""
        with self._lock:
            if self._in_memory is not None:
                self._in_memory.close()
