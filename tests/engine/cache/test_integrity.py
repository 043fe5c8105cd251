"""`check_integrity`: whatever is broken by hand is found and named. Blocks hold 4 tokens."""

from collections.abc import Callable

import pytest

from cache_driver import CacheDriver
from paged_chat.engine.cache.block import Block, Root
from paged_chat.engine.cache.block_pool import BlockPool
from paged_chat.engine.sequence import Sequence

Break = Callable[[CacheDriver], object]


@pytest.fixture
def cache() -> CacheDriver:
    """A chat that runs in blocks 1, 2 and, its tail, 3; another one's blocks 4 and, its tail, 5 are cached."""
    cache = CacheDriver(num_blocks=8, block_size=4)
    cache.start(range(10))
    cache.ask(range(50, 56))
    return cache


def block(cache: CacheDriver, block_id: int) -> Block:
    return cache.manager.pool.blocks[block_id]


def running(cache: CacheDriver) -> Sequence:
    [sequence] = cache.running
    return sequence


def children(cache: CacheDriver, parent: Root | Block) -> dict[int, dict[int, Block]]:
    return cache.manager.pool.index._children[parent]


def move_to_another_queue(cache: CacheDriver) -> None:
    pool = cache.manager.pool
    pool._full.remove(block(cache, 4))
    pool._partial.append(block(cache, 4))


def drop_from_the_children(cache: CacheDriver) -> None:
    del children(cache, cache.root())[50]


BREAKS: dict[str, Break] = {
    # the pool
    "block 1 is free and held": lambda cache: cache.manager.pool._empty.append(block(cache, 1)),
    "block 4 waits in the wrong queue": move_to_another_queue,
    "the null block can be found": lambda cache: setattr(block(cache, 0), "parent", cache.root()),
    "a free queue's length is off": lambda cache: setattr(cache.manager.pool._empty, "_length", 3),
    "block 6 is neither free nor held": lambda cache: cache.manager.pool._empty.remove(block(cache, 6)),
    "block 2 is held and its parent isn't": lambda cache: cache.manager.pool.release(block(cache, 1)),
    "the count of shared blocks is off": lambda cache: setattr(cache.manager.pool, "num_shared", 1),
    # the index
    "the count of published blocks is off": lambda cache: setattr(cache.manager.pool.index, "num_published", 3),
    "the hash map and the blocks disagree": lambda cache: cache.manager.pool.index._by_hash.popitem(),
    "the index of children and the blocks disagree": drop_from_the_children,
    "block 1 is under the wrong parent": lambda cache: setattr(block(cache, 1), "parent", cache.root("other")),
    "block 1 is under another token than its first": lambda cache: setattr(block(cache, 1), "token_ids", (9, 1, 2, 3)),
    "an entry is empty": lambda cache: children(cache, cache.root()).setdefault(99, {}),
    "the list of roots is off": lambda cache: cache.manager.pool.index.roots.setdefault(cache.root("other")),
    # the manager
    "KV without a block": lambda cache: setattr(running(cache), "num_computed_tokens", 13),
    "block 1 is published under another parent": lambda cache: setattr(running(cache), "root", cache.root("other")),
    "block 1 says it holds other tokens": lambda cache: running(cache).token_ids.insert(0, 7),
    "block 1 counts 2 holders and has 1": lambda cache: cache.manager.pool.acquire(block(cache, 1)),
    "a block is expected from a sequence that doesn't run": lambda cache: cache.manager._being_computed.update(
        {b"": cache.sequence([1])}
    ),
}


def test_a_cache_in_order_passes(cache):
    cache.manager.check_integrity(cache.running)


@pytest.mark.parametrize("complaint", BREAKS)
def test_what_is_broken_is_named(cache, complaint):
    BREAKS[complaint](cache)
    with pytest.raises(AssertionError) as found:
        cache.manager.check_integrity(cache.running)
    assert str(found.value).split("\n")[0] == complaint


def test_a_parent_without_children_is_found(cache):
    index = cache.manager.pool.index
    index._children[block(cache, 6)] = {}
    with pytest.raises(AssertionError, match="an entry is empty"):
        index.check_integrity(cache.manager.pool.blocks)


def test_the_null_block_in_a_queue_is_found(cache):
    pool = cache.manager.pool
    pool._empty.append(pool.blocks[0])
    with pytest.raises(AssertionError, match="the null block can be taken"):
        pool.check_integrity()


def test_a_block_under_one_that_cant_be_found_is_found(cache):
    """Its parent's parent is gone, its own entry isn't."""
    index = cache.manager.pool.index
    second = block(cache, 2)
    first = second.parent
    stranger = block(cache, 6)
    index._children[stranger] = index._children.pop(first)
    second.parent = stranger
    with pytest.raises(AssertionError, match="block 2 hangs under one that can't be found"):
        index.check_integrity(cache.manager.pool.blocks)


def test_a_block_under_a_partial_one_is_found(cache):
    index = cache.manager.pool.index
    index.add(block(cache, 3), block(cache, 5), (9,), None)
    with pytest.raises(AssertionError, match="block 3 hangs under a partial one"):
        index.check_integrity(cache.manager.pool.blocks)


# What a caller must never do


def test_a_pool_holds_the_null_block_and_at_least_one_more():
    with pytest.raises(AssertionError, match="at least one more"):
        BlockPool(1)


def test_only_a_holder_publishes(cache):
    with pytest.raises(AssertionError, match="only a holder"):
        cache.manager.pool.publish(block(cache, 6), cache.root(), (1, 2, 3, 4), b"hash")


def test_a_sequence_that_holds_blocks_isnt_admitted(cache):
    with pytest.raises(AssertionError, match="holds blocks"):
        cache.manager.admit(running(cache), alone=True)


def test_a_block_shows_itself_in_a_line(cache):
    """Not with its neighbours in a queue, and theirs."""
    assert repr(block(cache, 2)) == "Block(2, ref_count=1, tokens=4)"
    assert repr(block(cache, 6)) == "Block(6, ref_count=0, tokens=0)"
