"""Where a prompt parts from what the engine was sent before, and why."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

Cause = Literal[
    "system prompt edited",
    "context policy moved",
    "date changed",
    "thinking dropped",
    "text trimmed",
    "reply encoded anew",
    "template changed history",
]
EXPLANATIONS: dict[Cause, str] = {
    "system prompt edited": "the system prompt was edited",
    "context policy moved": "the chat doesn't fit the model's window, and other turns are left out than before",
    "date changed": "the model's template writes the date, which has changed",
    "thinking dropped": "the model's template drops the thinking of earlier replies",
    "text trimmed": "the model's template cuts white space off earlier messages",
    "reply encoded anew": "the model's template has no place for the reply's own tokens, so its text was encoded anew",
    "template changed history": "the model's template writes earlier messages differently as the chat goes on",
}


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first token of a prompt that isn't the one that the engine has read or written there.

    index: its position; all before it can be reused, nothing behind it can.
    """

    index: int
    sent_token_id: int
    token_id: int
    cause: Cause

    def __str__(self) -> str:
        """Such as "from token 34 on the prompt is new: the system prompt was edited"."""
        return f"from token {self.index + 1:,} on the prompt is new: {EXPLANATIONS[self.cause]}"


def first_difference(sent: Sequence[int], now: Sequence[int]) -> int | None:
    """The first position where both have a token, but not the same one."""
    length = min(len(sent), len(now))
    if sent[:length] == now[:length]:
        return None
    return next(position for position in range(length) if sent[position] != now[position])


def how_rewritten(decode: Callable[[Sequence[int]], str], sent: Sequence[int], now: Sequence[int]) -> Cause:
    """What a template has done to messages that were sent before.

    sent, now: both from the same place on: the beginning of a reply, or the first token that differs.
    """
    before, after = decode(sent).rstrip("\ufffd"), decode(now)
    if after.startswith(before):
        return "reply encoded anew"
    if _squeezed(after).startswith(_squeezed(before)):
        return "text trimmed"
    _, thought_end, answer = before.rpartition("</think>")
    if thought_end and _squeezed(after).startswith(_squeezed(answer)):
        return "thinking dropped"
    return "template changed history"


def _squeezed(text: str) -> str:
    return "".join(text.split())
