"""What of a prompt the cache has, in words that every surface uses before something is sent."""

from __future__ import annotations

from ..counted import counted
from .block_strip import DEFAULT_BLOCK_SIZE


def reuse_words(num_tokens: int, block_size: int = DEFAULT_BLOCK_SIZE) -> str:
    """Such as "37 blocks and 3 tokens", "5 tokens", "nothing": blocks are shared whole, tokens of one more copied."""
    num_blocks, num_more = divmod(num_tokens, block_size)
    words = [counted(num_blocks, "block")] if num_blocks else []
    words += [counted(num_more, "token")] if num_more else []
    return " and ".join(words) or "nothing"
