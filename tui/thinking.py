"""A reply's thinking, apart from its answer: some models write it between tags first."""

from __future__ import annotations

from dataclasses import dataclass

OPENING, CLOSING = "<think>", "</think>"


@dataclass(frozen=True, slots=True)
class ThoughtReply:
    """`is_open`: the model is still thinking, so there is no answer yet."""

    thinking: str
    answer: str
    is_open: bool = False


def split_thinking(text: str) -> ThoughtReply:
    """Only a reply that begins with the tag thinks; some templates write the opening tag themselves."""
    before, opening, rest = text.partition(OPENING)
    if opening and not before.strip():
        thinking, closing, answer = rest.partition(CLOSING)
        return ThoughtReply(thinking.strip(), answer.lstrip("\n"), is_open=not closing)
    thinking, closing, answer = text.partition(CLOSING)
    if closing and OPENING not in thinking:
        return ThoughtReply(thinking.strip(), answer.lstrip("\n"))
    return ThoughtReply("", text)
