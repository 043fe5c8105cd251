"""Numbers of things, in words."""

from __future__ import annotations


def counted(number: int, thing: str, things: str | None = None) -> str:
    """`1 chat`, `1,204 chats`, `2 replies`; `things` is the plural where no "s" makes it."""
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {things or thing + 's'}"


def megabytes(num_bytes: int) -> str:
    """`98 MB`, `1,204 MB`."""
    return f"{num_bytes / 1e6:,.0f} MB"
