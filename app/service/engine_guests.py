"""Other programs that use this process's engine now: who would lose what if another model took its place."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum

from ..counted import counted


class Guest(Enum):
    """What visits; the value is what one does, and what several do."""

    PROGRAM = ("other program uses this model", "other programs use this model")
    REQUEST = ("request to the API is being answered", "requests to the API are being answered")


class EngineGuests:
    """Counts those that are here; safe from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers: Counter[Guest] = Counter()

    @contextmanager
    def visit(self, guest: Guest) -> Iterator[None]:
        with self._lock:
            self._numbers[guest] += 1
        try:
            yield
        finally:
            with self._lock:
                self._numbers[guest] -= 1

    @property
    def words(self) -> list[str]:
        """Such as ["2 other programs use this model"]; empty where nobody is here."""
        with self._lock:
            return [counted(self._numbers[guest], *guest.value) for guest in Guest if self._numbers[guest]]
