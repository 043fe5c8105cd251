"""What there is to say about the one block that a person points at."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from paged_chat.engine import BlockDetail
from paged_chat.engine.errors import TokenizerMissing

from ..engine_query import engine_query

if TYPE_CHECKING:
    from paged_chat.engine import Engine

NUM_HASH_DIGITS = 8


@dataclass(frozen=True, slots=True)
class BlockNote:
    """A block and its text; `text` shows a character that is cut in the middle as U+FFFD, and is empty if withheld."""

    detail: BlockDetail
    text: str

    @property
    def state_words(self) -> str:
        """For people: "shared by 3", "held by 1", "cached", "free"."""
        if self.detail.ref_count:
            return f"{'shared' if self.detail.ref_count > 1 else 'held'} by {self.detail.ref_count}"
        return "cached" if self.detail.token_ids or self.detail.is_withheld else "free"

    @property
    def figures_words(self) -> str:
        """For engineers: "block 417, ref_count 3, hash 9f3c21ab, tokens 32 to 47"."""
        detail = self.detail
        words = [f"block {detail.block_id}", f"ref_count {detail.ref_count}"]
        if detail.block_hash is not None:
            words.append(f"hash {detail.block_hash[:NUM_HASH_DIGITS]}")
        if detail.first_position is not None and detail.token_ids:
            last = detail.first_position + len(detail.token_ids) - 1
            words.append(f"tokens {detail.first_position} to {last}")
        return ", ".join(words)

    @property
    def holders_words(self) -> str:
        """Such as "r12, r12 reply 2": requests, and of several replies which; empty for nobody."""
        return ", ".join(
            request_id if sample == 0 else f"{request_id} reply {sample + 1}"
            for request_id, sample in self.detail.holders
        )


@engine_query
def read_block(engine: Engine, block_id: int, salt: str | None = None) -> BlockNote:
    """For `ChatService.ask_engine`; with a salt, blocks of other salts are told without what they hold.

    Raises InvalidParameter for an id that the pool hasn't.
    """
    detail = replace(engine.block(block_id, salt=salt), root=None)  # which is the engine's own
    try:
        text = engine.decode(detail.token_ids) if detail.token_ids else ""
    except TokenizerMissing:
        text = " ".join(map(str, detail.token_ids))
    return BlockNote(detail, text)
