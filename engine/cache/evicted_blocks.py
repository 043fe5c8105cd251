"""A bounded memory of what was given up for the space: it tells "evicted" from "never seen"."""

from collections.abc import Sequence

from .block import Block
from .block_hash import BlockHasher


class EvictedBlocks:
    """The hashes of the blocks that were evicted last; every operation is O(1).

    Always: a hash is in it  <=>  its block was evicted, has not been published since, and no `capacity` others were
            evicted after it;
            `num_forgotten` counts those that fell out at the old end, so as long as it is 0 nothing is missing.

    An entry takes some 150 bytes. It says that something was here once, and no more: nothing is reused because of it,
    so that two blocks under one hash do no harm.
    """

    def __init__(self, hasher: BlockHasher, capacity: int) -> None:
        self._hasher = hasher
        self.capacity = capacity
        self.num_forgotten = 0
        self._hashes: dict[bytes, None] = {}  # in the order of their eviction

    def __len__(self) -> int:
        return len(self._hashes)

    def __contains__(self, block_hash: bytes) -> bool:
        return block_hash in self._hashes

    def add(self, block: Block) -> None:
        """Called while the block is still published; a partial one is remembered by all the tokens that it holds."""
        block_hash = self._hash_of(block)
        self._hashes.pop(block_hash, None)
        self._hashes[block_hash] = None
        if len(self._hashes) > self.capacity:
            del self._hashes[next(iter(self._hashes))]
            self.num_forgotten += 1

    def discard(self, block: Block) -> None:
        """It can be found again."""
        self._hashes.pop(self._hash_of(block), None)

    def num_tokens(self, parent_hash: bytes, token_ids: Sequence[int], block_size: int) -> int:
        """How many of these tokens, which follow the block of that hash, lay in blocks that were evicted.

        Whole blocks first, then what a partial one held of the block behind them; at most `block_size` hashes more
        than there are whole blocks.
        """
        end = 0
        while end + block_size <= len(token_ids):
            block_hash = self._hasher.block(parent_hash, token_ids[end : end + block_size])
            if block_hash not in self._hashes:
                break
            parent_hash = block_hash
            end += block_size
        rest = token_ids[end : end + block_size - 1] if self._hashes else ()
        for length in range(len(rest), 0, -1):
            if self._hasher.block(parent_hash, rest[:length]) in self._hashes:
                return end + length
        return end

    def _hash_of(self, block: Block) -> bytes:
        if block.block_hash is not None:
            return block.block_hash
        assert block.parent is not None, "only a block that can be found can be given up"
        return self._hasher.block(block.parent.block_hash or b"", block.token_ids)
