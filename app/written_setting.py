"""Settings of a reply as people write and read them: "top p 0.9" for `top_p=0.9`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from typing import TypeAlias

from paged_chat.engine.errors import InvalidParameter
from paged_chat.engine.number_range import shown
from paged_chat.engine.request import RANGES, SamplingParams

Setting: TypeAlias = float | int | bool | str | tuple[str, ...] | None

SETTING_NAMES = (*(name for name in RANGES if name != "n"), "early_stopping", "stop")
"""Every setting of a reply; how many replies there are isn't one of them."""
NOTHING = "-"
"""The word for no value, where that is one."""
_NOTHING_TOO = ("off", "none")
# The settings that may have none, and what that means.
NONE_MEANS: Mapping[str, str] = {
    "seed": "drawn anew each time",
    "max_tokens": "what the window holds",
    "logprobs": "no alternatives are kept",
}
_EARLY_STOPPING: Mapping[str, Setting] = {"true": True, "false": False, "never": "never"}


def spoken(name: str) -> str:
    """What a setting is called on a screen."""
    return name.replace("_", " ")


def setting_words(name: str, value: Setting) -> str:
    """Such as "temperature 0.7", and "seed -, drawn anew each time"."""
    if value is None:
        return f"{spoken(name)} {NOTHING}, {NONE_MEANS[name]}"
    return f"{spoken(name)} {as_written(value)}"


def as_written(value: Setting) -> str:
    """A value as `read_setting` takes it."""
    if value is None:
        return NOTHING
    if isinstance(value, tuple):
        return "\n".join(value) or NOTHING
    return f"{value:g}" if isinstance(value, float) else str(value).lower() if isinstance(value, bool) else str(value)


def allowed_words(name: str) -> str:
    """What a setting may be: "0 to 100"; "" where that isn't a number."""
    return RANGES[name].words if name in RANGES else ""


def read_setting(name: str, text: str) -> Setting:
    """The value that a person wrote; of several stop texts each stands on its own line.

    Raises InvalidParameter for what is none, with what it may be. Whether a number is in its range, and whether
    settings go together, is judged where SamplingParams are built; see `in_spoken_names`.
    """
    if name == "stop":
        return () if text == NOTHING else tuple(line for line in text.split("\n") if line)
    if name in NONE_MEANS and text in (NOTHING, *_NOTHING_TOO):
        return None
    if name == "early_stopping":
        if text.lower() not in _EARLY_STOPPING:
            raise InvalidParameter(f"{spoken(name)} must be {_listed(_EARLY_STOPPING)}, not {shown(text)}")
        return _EARLY_STOPPING[text.lower()]
    allowed = RANGES[name]
    try:
        # A comma is what many keyboards have for it.
        return int(text) if allowed.is_whole else float(text.replace(",", "."))
    except ValueError:
        or_none = f", or {NOTHING} ({NONE_MEANS[name]})" if name in NONE_MEANS else ""
        raise InvalidParameter(f"{spoken(name)} must be {allowed}{or_none}, not {shown(text)}") from None


_SPOKEN_NAMES: Mapping[str, str] = {one.name: spoken(one.name) for one in fields(SamplingParams)}


@contextmanager
def in_spoken_names(names: Mapping[str, str] = _SPOKEN_NAMES) -> Iterator[None]:
    """What SamplingParams refuse is told with the names that settings have on a screen.

    names: where they are others than `spoken` gives, those by their names in SamplingParams.
    """
    try:
        yield
    except InvalidParameter as error:
        name = re.compile(rf"\b({'|'.join(names)})\b")
        raise InvalidParameter(name.sub(lambda found: names[found[0]], str(error))) from error


def _listed(words: Mapping[str, Setting]) -> str:
    *first, last = words
    return f"{', '.join(first)} or {last}"
