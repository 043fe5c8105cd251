"""A doubly linked list of blocks, threaded through the blocks themselves: every operation is O(1)."""

from collections.abc import Iterator

from .block import Block


class FreeQueue:
    """Blocks nobody holds, the next one to be taken at the front.

    Always: a block stands in at most one queue, and `block.queue` names it.
    """

    def __init__(self) -> None:
        # A sentinel on either side spares every operation the question whether it is at an end.
        self._front, self._back = Block(-1), Block(-1)
        self._front.next_free, self._back.previous_free = self._back, self._front
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Block]:
        block = self._front.next_free
        while block is not None and block is not self._back:
            yield block
            block = block.next_free

    def append(self, block: Block) -> None:
        assert block.queue is None, "a block can wait in one queue only"
        last = self._back.previous_free
        assert last is not None
        last.next_free, block.previous_free = block, last
        block.next_free, self._back.previous_free = self._back, block
        block.queue = self
        self._length += 1

    def remove(self, block: Block) -> None:
        assert block.queue is self, "removed a block from a queue it isn't in"
        before, after = block.previous_free, block.next_free
        assert before is not None
        assert after is not None
        before.next_free, after.previous_free = after, before
        block.previous_free = block.next_free = block.queue = None
        self._length -= 1

    def pop_front(self) -> Block:
        block = self._front.next_free
        assert block is not None
        assert block is not self._back, "took a block from an empty queue"
        self.remove(block)
        return block
