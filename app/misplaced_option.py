"""Options that stand at the wrong side of a command's name: where they go."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any


@contextmanager
def telling_where_options_go(words: Sequence[str]) -> Iterator[None]:
    """An option that another part of the command line has is refused with the line as it should be.

    words: the command line, without the program's name.
    """
    try:
        yield
    except Exception as error:
        refusal: Any = error  # of a class of click's, of which Typer has a copy that only it may import
        if hasattr(refusal, "option_name") and hasattr(refusal, "possibilities"):
            ctx, option = refusal.ctx, refusal.option_name
            place = _place_before(ctx, option) or _place_behind(ctx, option, words)
            if place is not None:
                refusal.message, refusal.possibilities = f"{option} goes {place}", None
        raise


def _place_before(ctx: Any, option: str) -> str | None:
    """Such as "before the command: paged-chat --home PATH ask"."""
    behind = [ctx.info_name]
    while ctx.parent is not None:
        ctx = ctx.parent
        if (written := _written(ctx.command, option)) is not None:
            return f"before the command: {' '.join([ctx.command_path, written, *behind])}"
        behind.insert(0, ctx.info_name)
    return None


def _place_behind(ctx: Any, option: str, words: Sequence[str]) -> str | None:
    """Such as "behind the command: paged-chat sessions list --json", of the command that was named."""
    path, command = [ctx.command_path], ctx.command
    for word in words:
        if word not in getattr(command, "commands", {}):
            continue
        command = getattr(command, "loaded", command.commands.get)(word)
        path.append(word)
        if (written := _written(command, option)) is not None:
            return f"behind the command: {' '.join([*path, written])}"
    return None


def _written(command: Any, option: str) -> str | None:
    """The option with what it takes, such as "--home PATH"; None where a command has none of that name."""
    for param in command.params:
        if option in (*param.opts, *param.secondary_opts):
            return option if param.is_flag or param.count else f"{option} {param.metavar or 'VALUE'}"
    return None
