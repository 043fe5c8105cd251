"""The part of a reply in which a model thinks aloud before it answers."""

from __future__ import annotations

import re
from dataclasses import dataclass

# Some templates write the opening tag into the prompt, so that a reply begins inside.
_OPENING = re.compile(r"\s*<(think|thinking|reasoning)>\s*")
_CLOSING = re.compile(r"</(?:think|thinking|reasoning)>\s*")


@dataclass(frozen=True, slots=True)
class Thinking:
    """is_open_ended: the closing tag hasn't come."""

    text: str
    is_open_ended: bool


def split_thinking(text: str) -> tuple[Thinking | None, str]:
    """What a reply thinks, None if it doesn't, and what it answers."""
    opening, closing = _OPENING.match(text), _CLOSING.search(text)
    begin = opening.end() if opening else 0
    if closing is not None and (opening is not None or "<think" not in text[: closing.start()]):
        thought, answer = text[begin : closing.start()], text[closing.end() :]
        return (Thinking(thought.strip(), False) if thought.strip() else None), answer
    if opening is not None:
        return Thinking(text[begin:], True), ""
    return None, text
