"""The blocks of one reply in a row: which were found, copied or computed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from paged_chat.engine.config import EngineConfig

from ..chats import ReplyCost
from .block_view import LOOKS, BlockLook, BlockState

DEFAULT_BLOCK_SIZE = EngineConfig().block_size


class StripKind(StrEnum):
    """What became of a block's tokens; the value is the word for people."""

    HIT = "reused"
    COPIED = "copied"  # the first tokens of it were found in a block that others go on with
    COMPUTED = "computed"

    @property
    def look(self) -> BlockLook:
        """A strip has the pool's letters and colours: found blocks look like shared ones, computed ones like held."""
        return LOOKS[_STATES[self]]


_STATES = {
    StripKind.HIT: BlockState.SHARED,
    StripKind.COPIED: BlockState.COPIED,
    StripKind.COMPUTED: BlockState.HELD,
}


@dataclass(frozen=True, slots=True)
class BlockStrip:
    """The blocks of a reply, from the first token of its prompt to its own last one.

    runs: of one kind, how many blocks follow each other; a strip is made for each picture of a growing reply, so it
        takes no longer for a longer one.
    is_partial: the last block isn't full.
    """

    runs: tuple[tuple[StripKind, int], ...]
    is_partial: bool

    @property
    def num_blocks(self) -> int:
        return sum(count for _, count in self.runs)

    @property
    def letters(self) -> str:
        """Such as "sssssyhhh"."""
        return "".join(kind.look.letter * count for kind, count in self.runs)

    @property
    def short_letters(self) -> str:
        """For where there is no room for a letter each: "37s y 3h"."""
        return " ".join((str(count) if count > 1 else "") + kind.look.letter for kind, count in self.runs)

    def __str__(self) -> str:
        """Such as "reused 37 blocks, copied 1, computed 3"."""
        words = [f"{kind} {count:,}" for kind, count in self.runs]
        if words:
            words[0] += " block" if self.runs[0][1] == 1 else " blocks"
        return ", ".join(words)


def strip_of(cost: ReplyCost, block_size: int = DEFAULT_BLOCK_SIZE) -> BlockStrip:
    """From the counts alone: what is found is a beginning, and its last, broken block is copied.

    The last token of a reply is never computed upon, so it has no place in a block.
    """
    num_prompt = cost.num_cached_tokens + cost.num_computed_tokens
    num_tokens = num_prompt + max(0, cost.num_generated_tokens - 1)
    num_hits, num_copied_tokens = divmod(cost.num_cached_tokens, block_size)
    num_full, num_left = divmod(num_tokens, block_size)
    num_blocks = num_full + bool(num_left)
    num_hits = min(num_hits, num_full)
    num_copied = 1 if num_copied_tokens and num_hits < num_blocks else 0
    runs = (
        (StripKind.HIT, num_hits),
        (StripKind.COPIED, num_copied),
        (StripKind.COMPUTED, num_blocks - num_hits - num_copied),
    )
    return BlockStrip(tuple(run for run in runs if run[1]), is_partial=bool(num_left))
