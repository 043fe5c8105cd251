"""Replies to one prompt on standard output, as they come."""

from __future__ import annotations

import sys

from paged_chat.engine.request import TokenDelta

from ..terminal_text import shown_on
from .search_line import SearchLine


class ReplyPrinter:
    """Streams the first reply that isn't printed yet and keeps the later ones until their turn.

    With several replies each one is headed by its number, so that what streams side by side reads one after the other.
    """

    def __init__(self, num_replies: int, search_line: SearchLine) -> None:
        """search_line: gives way to the first reply."""
        self._search_line = search_line
        self._has_begun = False
        self._texts = [""] * num_replies
        self._is_finished = [False] * num_replies
        self._current = 0
        self._num_written = 0  # characters of the current reply

    def show(self, delta: TokenDelta) -> None:
        self._begin()
        self._texts[delta.sample] += delta.text
        self._is_finished[delta.sample] = delta.finish_reason is not None
        self._write_current()
        while self._is_finished[self._current] and self._current + 1 < len(self._texts):
            self._next()

    def finish(self) -> None:
        """Prints what is still kept, whole or not."""
        self._begin()
        self._write_current()
        while self._current + 1 < len(self._texts):
            self._next()
        sys.stdout.write("\n")
        sys.stdout.flush()

    def _begin(self) -> None:
        if not self._has_begun:
            self._has_begun = True
            self._search_line.clear()
            self._write_heading()

    def _next(self) -> None:
        sys.stdout.write("\n\n")
        self._current += 1
        self._num_written = 0
        self._write_heading()
        self._write_current()

    def _write_heading(self) -> None:
        if len(self._texts) > 1:
            sys.stdout.write(f"[{self._current + 1}/{len(self._texts)}] ")

    def _write_current(self) -> None:
        text = self._texts[self._current]
        sys.stdout.write(shown_on(sys.stdout, text[self._num_written :]))
        sys.stdout.flush()
        self._num_written = len(text)
