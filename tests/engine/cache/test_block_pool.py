"""The block pool: who holds a block, and which one is taken next."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from paged_chat.engine.cache.block import Block, Root
from paged_chat.engine.cache.block_pool import BlockPool

ROOT = Root(b"root", b"root hash")


@pytest.fixture
def pool() -> BlockPool:
    return BlockPool(6)


def take_chain(pool: BlockPool, name: str, num_full: int, tail: tuple[int, ...] = ()) -> list[Block]:
    """Holds and publishes a chain of full blocks of four tokens, and a partial tail behind them."""
    blocks: list[Block] = []
    for position in range(num_full):
        block = pool.take()
        tokens = [ord(name), position, 0, 0]
        pool.publish(block, blocks[-1] if blocks else ROOT, tokens, f"{name}{position}".encode())
        blocks.append(block)
    if tail:
        block = pool.take()
        pool.publish(block, blocks[-1] if blocks else ROOT, tail, None)
        blocks.append(block)
    return blocks


def release(pool: BlockPool, blocks: list[Block]) -> None:
    for block in reversed(blocks):
        pool.release(block)


def take_ids(pool: BlockPool, count: int) -> list[int]:
    return [pool.take().block_id for _ in range(count)]


def test_the_null_block_is_never_handed_out(pool):
    assert take_ids(pool, 5) == [1, 2, 3, 4, 5]
    assert pool.num_available == 0
    assert pool.num_referenced == 5
    assert pool.blocks[0].ref_count == 0
    pool.check_integrity()


def test_a_fresh_pool_holds_nothing(pool):
    assert (pool.num_blocks, pool.num_empty, pool.num_cached, pool.num_referenced) == (6, 5, 0, 0)
    assert (pool.num_shared, pool.num_frees, pool.num_evictions) == (0, 0, 0)
    assert pool.evicted.capacity == 6  # remembers as many evictions as it has blocks


def test_holders_are_counted_and_the_last_one_frees(pool):
    block = pool.take()
    pool.acquire(block)
    pool.acquire(block)
    assert (block.ref_count, pool.num_shared, pool.num_referenced) == (3, 1, 1)
    pool.release(block)
    assert (block.ref_count, pool.num_shared) == (2, 1)
    pool.release(block)
    assert (block.ref_count, pool.num_shared, pool.num_frees) == (1, 0, 0)
    pool.release(block)
    assert (block.ref_count, pool.num_empty, pool.num_referenced, pool.num_frees) == (0, 5, 0, 1)
    pool.check_integrity()


def test_a_block_that_nobody_holds_cannot_be_released(pool):
    block = pool.take()
    pool.release(block)
    with pytest.raises(AssertionError, match="nobody holds"):
        pool.release(block)


def test_a_published_block_stays_cached_when_it_is_freed(pool):
    release(pool, take_chain(pool, "a", 2, tail=(9,)))
    assert (pool.num_empty, pool.num_cached, pool.num_referenced) == (2, 3, 0)


def test_a_hit_revives_a_cached_block(pool):
    blocks = take_chain(pool, "a", 2)
    release(pool, blocks)
    pool.acquire(blocks[0])
    assert (blocks[0].ref_count, pool.num_cached, pool.num_referenced) == (1, 1, 1)
    assert pool.index.find_full(ROOT, b"a0", [97, 0, 0, 0]) is blocks[0]
    assert pool.num_evictions == 0
    pool.check_integrity()


def test_blocks_with_nothing_worth_keeping_are_taken_first_then_partial_tails_then_full_blocks(pool):
    release(pool, take_chain(pool, "a", 2, tail=(9,)))  # full 1, 2; partial 3
    unpublished = pool.take()  # 4
    pool.release(unpublished)
    assert take_ids(pool, 2) == [5, 4]
    assert pool.num_evictions == 0
    assert take_ids(pool, 1) == [3]
    assert take_ids(pool, 2) == [2, 1]
    assert pool.num_evictions == 3


def test_full_blocks_are_taken_by_last_use(pool):
    first, second = take_chain(pool, "a", 1), take_chain(pool, "b", 1)
    release(pool, first)
    release(pool, second)
    take_ids(pool, 3)
    pool.acquire(first[0])  # used again, so the other one is now the older
    pool.release(first[0])
    assert take_ids(pool, 2) == [2, 1]


def test_the_tail_of_a_sequence_is_taken_before_its_head(pool):
    release(pool, take_chain(pool, "a", 3))
    take_ids(pool, 2)
    assert take_ids(pool, 3) == [3, 2, 1]


def test_a_copied_source_counts_as_used(pool):
    first, second = take_chain(pool, "a", 1), take_chain(pool, "b", 1)
    release(pool, first)
    release(pool, second)
    pool.touch(first[0])
    take_ids(pool, 3)
    assert take_ids(pool, 2) == [2, 1]


def test_a_held_block_that_is_copied_from_stays_held(pool):
    [held] = take_chain(pool, "a", 1)
    pool.touch(held)
    assert (held.ref_count, pool.num_available) == (1, 4)
    pool.check_integrity()


def test_what_is_published_again_counts_as_evicted_no_more(pool):
    release(pool, take_chain(pool, "a", 1))
    release(pool, [pool.take() for _ in range(5)])
    assert b"a0" in pool.evicted
    take_chain(pool, "a", 1)
    assert len(pool.evicted) == 0


def test_an_evicted_block_is_found_no_more(pool):
    release(pool, take_chain(pool, "a", 1))
    take_ids(pool, 5)
    assert pool.index.find_full(ROOT, b"a0", [97, 0, 0, 0]) is None
    assert pool.index.num_published == 0
    assert (pool.num_cached, pool.num_evictions) == (0, 1)
    pool.check_integrity()


def test_a_longer_block_makes_the_partial_one_it_begins_with_useless(pool):
    release(pool, take_chain(pool, "a", 0, tail=(7, 8)))
    longer = pool.take()
    pool.publish(longer, ROOT, (7, 8, 9), None)
    assert pool.index.find_longest(ROOT, (7, 8)) == (longer, 2)
    pool.release(longer)
    assert (pool.num_empty, pool.num_cached) == (4, 1)
    pool.check_integrity()


def test_a_partial_block_that_parts_from_another_is_kept_beside_it(pool):
    release(pool, take_chain(pool, "a", 0, tail=(7, 8)))
    release(pool, take_chain(pool, "a", 0, tail=(7, 9)))
    assert pool.num_cached == 2


def test_integrity_names_the_block_that_is_off(pool):
    block = pool.take()
    pool.check_integrity()
    block.ref_count = 0
    with pytest.raises(AssertionError, match="block 1 "):
        pool.check_integrity()
    block.ref_count = -1
    with pytest.raises(AssertionError, match="block 1 "):
        pool.check_integrity()


def test_counts_and_takes_do_not_grow_with_the_pool():
    """Every operation runs the same lines of code however large the pool is."""

    def num_lines(num_blocks: int) -> int:
        pool = BlockPool(num_blocks)
        seen = 0

        def count(frame: FrameType, event: str, argument: object) -> Callable[..., Any]:
            nonlocal seen
            seen += event == "line"
            return count

        before = sys.gettrace()
        sys.settrace(count)
        try:
            block = pool.take()
            pool.acquire(block)
            _ = (pool.num_empty, pool.num_cached, pool.num_available, pool.num_referenced, pool.num_shared)
            pool.release(block)
            pool.release(block)
        finally:
            sys.settrace(before)
        return seen

    assert num_lines(10) == num_lines(10_000) > 30
