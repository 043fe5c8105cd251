"""Paths on the command line: an empty one, which would be the folder that one is in, is refused."""

from __future__ import annotations

from pathlib import Path

import typer


def named_path(text: str) -> Path:
    """What `parser=` of an option or an argument takes."""
    if not text:
        raise typer.BadParameter("must name a file, not ''")
    return Path(text)
