"""Options that are numbers: their help, and the error for what is no number or out of range, come from one range."""

from __future__ import annotations

from typing import Any

import typer

from paged_chat.engine.number_range import NumberRange, shown


def number_option(allowed: NumberRange, *names: str, metavar: str, help: str) -> Any:
    """What `typer.Option` gives, for a number of that range; `help` is a sentence without its full stop."""

    def parse(text: str) -> float:
        try:
            value = int(text) if allowed.is_whole else float(text)
        except ValueError:
            value = None
        if value not in allowed:
            raise typer.BadParameter(f"must be {allowed}, not {shown(text)}")
        assert value is not None, "None is in no range"
        return value

    return typer.Option(*names, metavar=metavar, parser=parse, help=f"{help} ({allowed.words}).")
