"""The free queue: a linked list threaded through the blocks."""

import pytest

from paged_chat.engine.cache.block import Block
from paged_chat.engine.cache.free_queue import FreeQueue


@pytest.fixture
def blocks() -> list[Block]:
    return [Block(block_id) for block_id in range(1, 6)]


@pytest.fixture
def queue(blocks: list[Block]) -> FreeQueue:
    queue = FreeQueue()
    for block in blocks:
        queue.append(block)
    return queue


def ids(queue: FreeQueue) -> list[int]:
    return [block.block_id for block in queue]


def test_blocks_leave_in_the_order_they_came(queue):
    assert [queue.pop_front().block_id for _ in range(5)] == [1, 2, 3, 4, 5]
    assert len(queue) == 0
    assert ids(queue) == []


@pytest.mark.parametrize(("removed", "left"), [(1, [2, 3, 4, 5]), (3, [1, 2, 4, 5]), (5, [1, 2, 3, 4])])
def test_a_block_leaves_from_front_middle_and_back(queue, blocks, removed, left):
    queue.remove(blocks[removed - 1])
    assert ids(queue) == left
    assert len(queue) == 4


def test_a_block_that_comes_back_stands_at_the_end(queue, blocks):
    queue.remove(blocks[1])
    queue.append(blocks[1])
    assert ids(queue) == [1, 3, 4, 5, 2]


def test_a_queue_that_was_emptied_can_be_filled_again(queue, blocks):
    while queue:
        queue.pop_front()
    queue.append(blocks[3])
    assert ids(queue) == [4]
    queue.remove(blocks[3])
    assert ids(queue) == []


def test_a_block_names_the_queue_it_stands_in(queue, blocks):
    assert blocks[0].queue is queue
    queue.remove(blocks[0])
    assert blocks[0].queue is None


def test_a_block_waits_in_one_queue_only(queue, blocks):
    with pytest.raises(AssertionError, match="one queue only"):
        FreeQueue().append(blocks[0])
    with pytest.raises(AssertionError, match="isn't in"):
        FreeQueue().remove(blocks[0])


def test_an_empty_queue_gives_no_block():
    with pytest.raises(AssertionError, match="took a block from an empty queue"):
        FreeQueue().pop_front()
