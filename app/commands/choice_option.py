"""Options that are one of a few words: their help, and the error for any other word, come from the words."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import typer

from paged_chat.engine.number_range import shown


def choice_option(choices: Iterable[str], *names: str, metavar: str, help: str) -> Any:
    """What `typer.Option` gives, for one of the words (of an enumeration too); `help` is a sentence."""
    words = ", ".join(choices)

    def parse(text: str) -> str:
        for choice in choices:
            if choice == text:
                return choice
        raise typer.BadParameter(f"must be one of {words}, not {shown(text)}")

    return typer.Option(*names, metavar=metavar, parser=parse, help=f"{help} One of {words}.")
