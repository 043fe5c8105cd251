"""Numbers of things, in words."""

from __future__ import annotations

from paged_chat.engine.counted import counted

__all__ = ["counted", "megabytes"]


def megabytes(num_bytes: int) -> str:
    """`98 MB`, `1,204 MB`."""
    return f"{num_bytes / 1e6:,.0f} MB"
