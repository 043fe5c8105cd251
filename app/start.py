"""The program's first step: the command line is imported in such a way that Ctrl-C ends it silently meanwhile."""

from .imports import ended_by_interrupt


def main() -> None:
    """What the installed `paged-chat` calls."""
    with ended_by_interrupt():
        from . import cli
    cli.main()
