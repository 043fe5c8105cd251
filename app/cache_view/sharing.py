"""What sharing blocks saves, in words that every surface uses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from paged_chat.engine.request import BlockUse

from ..chats import ReplyCost
from .block_strip import DEFAULT_BLOCK_SIZE


@dataclass(frozen=True, slots=True)
class Sharing:
    """Blocks that several replies or beams use together, and what they would use each alone."""

    num_replies: int
    num_blocks: int
    num_blocks_alone: int
    noun: str = "replies"

    @property
    def share_saved(self) -> float:
        """From 0 to 1."""
        return 1 - self.num_blocks / self.num_blocks_alone if self.num_blocks_alone else 0.0

    def __str__(self) -> str:
        """Such as "8 replies used 58 blocks instead of 416"."""
        return f"{self.num_replies:,} {self.noun} used {self.num_blocks:,} blocks instead of {self.num_blocks_alone:,}"


def sharing_of_request(use: BlockUse | None, *, beam_width: int = 1) -> Sharing | None:
    """As the engine counted; None where nothing was shared."""
    if use is None or use.num_blocks >= use.num_blocks_alone:
        return None
    noun = "beams" if beam_width > 1 else "replies"
    return Sharing(use.num_sequences, use.num_blocks, use.num_blocks_alone, noun)


def sharing_of_replies(costs: Sequence[ReplyCost], block_size: int = DEFAULT_BLOCK_SIZE) -> Sharing | None:
    """Of replies side by side, from what each took: the full blocks of their prompt are there once.

    None for one reply alone, and where the prompt fills no block. The last token of a reply is never computed upon, so
    it has no place in a block.
    """
    if len(costs) < 2:
        return None
    num_prompt = min(cost.num_cached_tokens + cost.num_computed_tokens for cost in costs)
    num_shared = num_prompt // block_size
    alone = [
        -(-(cost.num_cached_tokens + cost.num_computed_tokens + max(0, cost.num_generated_tokens - 1)) // block_size)
        for cost in costs
    ]
    num_together = num_shared + sum(num_blocks - num_shared for num_blocks in alone)
    return Sharing(len(costs), num_together, sum(alone)) if num_shared else None
