"""Where a reply that was cut short goes on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .chats import Message

if TYPE_CHECKING:
    from paged_chat.engine import Engine

NUM_CONTEXT_TOKENS = 8  # enough for any word to be decoded as behind the whole reply


@dataclass(frozen=True, slots=True)
class ResumePoint:
    """The reply as far as it is kept: without an end token, and without half a character.

    decode: token ids to text.
    """

    token_ids: Sequence[int]
    text: str
    decode: Callable[[Sequence[int]], str]

    def joint(self, new_ids: Sequence[int]) -> str:
        """What belongs between `text` and the text of the ids that follow: nothing, or a space.

        Some tokenizers (SentencePiece's) write a space before each word and take away the one at the start of a text.
        A request that continues a reply starts a text of its own.
        """
        context = self.token_ids[-NUM_CONTEXT_TOKENS:]
        before, after = self.decode(context), self.decode(new_ids)
        return " " if context and self.decode([*context, *new_ids]) == f"{before} {after}" else ""


def resume_point(engine: Engine, reply: Message, model: str) -> ResumePoint:
    """In a reply of the engine's own `model` its very ids; another model's is encoded anew."""
    if reply.token_ids is None or reply.model != model:
        return ResumePoint(engine.encode(reply.text), reply.text, engine.decode)
    token_ids = engine.resumable(reply.token_ids)
    return ResumePoint(token_ids, engine.decode(token_ids), engine.decode)
