"""The fixed set of KV blocks."""

from collections.abc import Sequence

from ..events import EventKind, EventLog
from .block import NULL_BLOCK_ID, Block, Parent
from .block_hash import BlockHasher
from .evicted_blocks import EvictedBlocks
from .free_queue import FreeQueue
from .prefix_index import PrefixIndex


class BlockPool:
    """Fixed set of KV blocks: who holds each, which can be found again, and which to take next.

    Always: num_available + num_referenced == num_blocks - 1   (block 0 is the null block)
            a block is in a free queue  <=>  its ref_count is 0
            a published block's parent is a root, or held by everyone who holds the block

    Taken first are blocks with nothing worth keeping, then partial tails, then full cached blocks by last use. A
    sequence gives its blocks back from tail to head, so children always stand before their parents in the queues
    and an evicted block never leaves findable children behind.
    """

    def __init__(
        self, num_blocks: int, events: EventLog | None = None, *, evicted: EvictedBlocks | None = None
    ) -> None:
        """evicted: remembers what `take` gives up; by default so many blocks as the pool has."""
        assert num_blocks >= 2, "a pool holds the null block and at least one more"
        self.blocks = [Block(block_id) for block_id in range(num_blocks)]
        self.index = PrefixIndex()
        self.evicted = EvictedBlocks(BlockHasher(), capacity=num_blocks) if evicted is None else evicted
        self.num_shared = 0  # blocks with ref_count > 1
        self.num_evictions = 0
        self.num_frees = 0
        self._events = events or EventLog(capacity=1)
        self._empty, self._partial, self._full = FreeQueue(), FreeQueue(), FreeQueue()
        for block in self.blocks[NULL_BLOCK_ID + 1 :]:
            self._empty.append(block)

    @property
    def num_blocks(self) -> int:
        return len(self.blocks)

    @property
    def num_empty(self) -> int:
        """Blocks that nobody holds and that hold nothing findable."""
        return len(self._empty)

    @property
    def num_cached(self) -> int:
        """Blocks that nobody holds and that a hit would revive."""
        return len(self._partial) + len(self._full)

    @property
    def num_available(self) -> int:
        return self.num_empty + self.num_cached

    @property
    def num_referenced(self) -> int:
        return self.num_blocks - 1 - self.num_available

    def take(self) -> Block:
        """The next free block, its old contents given up; the caller has checked `num_available`."""
        block = next(queue for queue in (self._empty, self._partial, self._full) if queue).pop_front()
        if block.is_published:
            num_tokens = len(block.token_ids)
            self._give_up(block)
            self.num_evictions += 1
            self._events.record(EventKind.EVICTED, block.block_id, num_tokens=num_tokens)
        block.ref_count = 1
        self._events.record(EventKind.ALLOCATED, block.block_id, 1)
        return block

    def acquire(self, block: Block) -> None:
        """One more holder; a cached block that nobody held is revived."""
        if block.ref_count == 0:
            self._queue_of(block).remove(block)
            kind = EventKind.HIT
        else:
            kind = EventKind.SHARED
            self.num_shared += block.ref_count == 1
        block.ref_count += 1
        self._events.record(kind, block.block_id, block.ref_count, num_tokens=len(block.token_ids))

    def release(self, block: Block) -> None:
        """One holder fewer; the last one out puts the block in its free queue."""
        assert block.ref_count > 0, f"released block {block.block_id}, which nobody holds"
        block.ref_count -= 1
        self.num_shared -= block.ref_count == 1
        if block.ref_count == 0:
            self.num_frees += 1
            self._queue_of(block).append(block)
            self._events.record(EventKind.FREED, block.block_id, num_tokens=len(block.token_ids))

    def publish(self, block: Block, parent: Parent, token_ids: Sequence[int], block_hash: bytes | None) -> None:
        """Lets others find a held block; `block_hash` is None for a partial one.

        Partial siblings that hold nothing but a beginning of the same tokens have become useless.
        """
        assert block.ref_count > 0, "only a holder knows that a block's KV is written"
        for sibling in self.index.partial_prefixes(parent, token_ids):
            self._partial.remove(sibling)
            self.index.remove(sibling)
            self._empty.append(sibling)
        self.index.add(block, parent, token_ids, block_hash)
        self.evicted.discard(block)
        self._events.record(EventKind.PUBLISHED, block.block_id, block.ref_count, num_tokens=len(token_ids))

    def touch(self, block: Block) -> None:
        """Counts a use of a block that stays free, such as being copied from."""
        if block.ref_count == 0:
            queue = self._queue_of(block)
            queue.remove(block)
            queue.append(block)

    def check_integrity(self) -> None:
        """Raises AssertionError, naming the block, where an invariant doesn't hold."""
        queued = 0
        for queue in (self._empty, self._partial, self._full):
            for block in queue:
                queued += 1
                assert block.ref_count == 0, f"block {block.block_id} is free and held"
                assert self._queue_of(block) is queue, f"block {block.block_id} waits in the wrong queue"
        null_block = self.blocks[NULL_BLOCK_ID]
        assert null_block.queue is None, "the null block can be taken"
        assert not null_block.is_published, "the null block can be found"
        assert queued == self.num_available, "a free queue's length is off"
        for block in self.blocks[NULL_BLOCK_ID + 1 :]:
            assert (block.queue is None) == (block.ref_count > 0), f"block {block.block_id} is neither free nor held"
            if block.ref_count and isinstance(block.parent, Block):
                assert block.parent.ref_count > 0, f"block {block.block_id} is held and its parent isn't"
        assert self.num_shared == sum(block.ref_count > 1 for block in self.blocks), "the count of shared blocks is off"
        self.index.check_integrity(self.blocks)

    def _give_up(self, block: Block) -> None:
        """Nobody finds it any more; that it was here is remembered."""
        self.evicted.add(block)
        self.index.remove(block)

    def _queue_of(self, block: Block) -> FreeQueue:
        if not block.is_published:
            return self._empty
        return self._partial if block.block_hash is None else self._full
