"""A sampling setting as a person writes it: behind a command, in a dialog, or as a part of what is compared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from paged_chat.engine.errors import InvalidParameter
from paged_chat.engine.request import RANGES

Setting: TypeAlias = float | int | bool | str | tuple[str, ...] | None

SETTING_NAMES = (*(name for name in RANGES if name != "n"), "early_stopping", "stop")
"""Every setting of a reply; how many replies there are isn't one of them."""
NOTHING = "-"
"""The word for no value, where that is one."""
_NOTHING_TOO = ("off", "none")
_NOTHING: Mapping[str, Setting] = {"max_tokens": None, "seed": None, "logprobs": None, "stop": ()}
_EARLY_STOPPING: Mapping[str, Setting] = {"true": True, "false": False, "never": "never"}


def read_setting(name: str, text: str) -> Setting:
    """The value that a text means; of several stop texts each stands on a line of its own.

    Raises InvalidParameter for what is no value of its kind; which numbers are in range is SamplingParams' to judge.
    """
    if name in _NOTHING and (text == NOTHING or (text in _NOTHING_TOO and name != "stop")):
        return _NOTHING[name]
    if name == "stop":
        return tuple(line for line in text.split("\n") if line)
    if name == "early_stopping":
        if text.lower() not in _EARLY_STOPPING:
            raise InvalidParameter(f"early stopping must be true, false or never, not {text!r}")
        return _EARLY_STOPPING[text.lower()]
    is_whole = RANGES[name].is_whole
    try:
        return int(text) if is_whole else float(text.replace(",", "."))
    except ValueError:
        kind = "a whole number" if is_whole else "a number"
        raise InvalidParameter(f"{spoken(name)} must be {kind}, not {text!r}") from None


def spoken(name: str) -> str:
    """A setting's name among other words, such as "top p"."""
    return name.replace("_", " ")
