"""What sharing blocks saves, in words that every surface uses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from paged_chat.engine.request import BlockUse

from ..chats import Message
from ..counted import counted
from .block_strip import DEFAULT_BLOCK_SIZE


@dataclass(frozen=True, slots=True)
class Sharing:
    """Blocks that several replies or beams use together, and what they would use each alone."""

    num_replies: int
    num_blocks: int
    num_blocks_alone: int
    noun: str = "replies"

    def __str__(self) -> str:
        """Such as "8 replies used 58 blocks instead of 416"."""
        used = counted(self.num_blocks, "block")
        return f"{self.num_replies:,} {self.noun} used {used} instead of {self.num_blocks_alone:,}"


def sharing_of_request(use: BlockUse | None, *, beam_width: int = 1) -> Sharing | None:
    """As the engine counted; None where nothing was shared."""
    if use is None or use.num_blocks >= use.num_blocks_alone:
        return None
    noun = "beams" if beam_width > 1 else "replies"
    return Sharing(use.num_sequences, use.num_blocks, use.num_blocks_alone, noun)


def sharing_of_replies(replies: Sequence[Message], block_size: int = DEFAULT_BLOCK_SIZE) -> Sharing | None:
    """Of replies that were asked for at once, from what each took and said: what begins alike is there once.

    None where nothing is shared, and while one of them is still written.
    """
    if any(reply.cost is None or reply.status == "draft" for reply in replies):
        return None
    keys = [key for reply in replies for key in _block_keys(reply, block_size)]
    num_blocks = len(set(keys))
    return Sharing(len(replies), num_blocks, len(keys)) if num_blocks < len(keys) else None


def _block_keys(reply: Message, block_size: int) -> Iterator[int]:
    """One for each block that it held; two replies to one message have a key in common where they held one block.

    The prompts of a comparison are the same under the same system prompt. The last token of a reply is never computed
    upon, so it has no place in a block; a block that isn't full is nobody else's.
    """
    cost = reply.cost
    assert cost is not None, "a reply without figures"
    num_prompt = cost.num_cached_tokens + cost.num_computed_tokens
    num_tokens = num_prompt + max(0, cost.num_generated_tokens - 1)
    ids = reply.token_ids or ()
    key = hash(None if reply.variant is None else reply.variant.system_prompt)
    for start in range(0, num_tokens, block_size):
        end = start + block_size
        key = hash((key, start, ids[max(0, start - num_prompt) : max(0, end - num_prompt)]))
        yield key if end <= num_tokens else hash((key, reply.id))
