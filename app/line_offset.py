"""Where a line of a text begins."""

from __future__ import annotations


def offset_of_line(text: str, line: int, start: int = 0) -> int:
    """The character with which line number `line` begins, counted from the one that begins at `start`, which is 0.

    Raises ValueError where the text has fewer lines.
    """
    for _ in range(line):
        start = text.index("\n", start) + 1
    return start
