"""Where a reply that was cut short goes on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

NUM_CONTEXT_TOKENS = 8  # enough for any word to be decoded as behind the whole reply


@dataclass(frozen=True, slots=True)
class ResumePoint:
    """What is kept of a reply: the ids that the prompt ends with.

    decode: token ids to text.
    """

    token_ids: tuple[int, ...]
    decode: Callable[[Sequence[int]], str]

    @property
    def text(self) -> str:
        return self.decode(self.token_ids)

    def joint(self, new_ids: Sequence[int]) -> str:
        """What belongs between `text` and the text of the ids that follow: nothing, or a space.

        Some tokenizers (SentencePiece's) write a space before each word and take away the one at the start of a text.
        A request that continues a reply starts a text of its own.
        """
        context = self.token_ids[-NUM_CONTEXT_TOKENS:]
        before, after = self.decode(context), self.decode(new_ids)
        return " " if context and self.decode([*context, *new_ids]) == f"{before} {after}" else ""
