"""Equal hashes of other tokens, or behind another parent, are a miss."""

import itertools

import pytest

from cache_driver import CacheDriver, WorstHasher
from paged_chat.engine.cache.block_hash import BlockHasher

PROMPT = list(range(1000, 1200))

# Hashes that collide


def two_blocks_with_equal_hashes(bits: int) -> tuple[list[int], list[int]]:
    hasher = BlockHasher(bits)
    root = hasher.root(("weights", ""))
    by_hash: dict[bytes, list[int]] = {}
    for token_id in itertools.count():
        tokens = [token_id] * 16
        other = by_hash.setdefault(hasher.block(root.block_hash, tokens), tokens)
        if other is not tokens:
            return other, tokens
    raise AssertionError


def test_equal_hashes_of_other_tokens_are_a_miss():
    cache = CacheDriver(num_blocks=12, hasher=BlockHasher(bits=8))
    first, second = two_blocks_with_equal_hashes(bits=8)
    cache.ask([*first, 1, 2, 3])
    assert cache.probe([*second, 1, 2, 3]).num_cached_tokens == 0
    cache.ask([*second, 1, 2, 3])
    assert cache.probe([*first, 1, 2, 3]).num_cached_tokens == 18
    cache.check()


def test_equal_hashes_and_tokens_behind_another_parent_are_a_miss():
    cache = CacheDriver(num_blocks=12, hasher=WorstHasher())
    first, second, common = [0] * 16, [1] + [0] * 15, [2] + [0] * 15
    cache.ask([*first, *common, 3])
    cache.ask([*second, 5])
    # The second block of the new prompt has the hash and the tokens of one that is known, behind another first block.
    assert cache.probe([*second, *common, 3]).num_cached_tokens == 16
    cache.ask([*second, *common, 3])
    assert cache.probe([*first, *common, 3]).num_cached_tokens == 32
    cache.check()


def test_a_chain_that_cannot_be_published_gives_its_blocks_back_empty():
    cache = CacheDriver(num_blocks=12, hasher=BlockHasher(bits=8))
    first, second = two_blocks_with_equal_hashes(bits=8)
    cache.ask([*first, 1, 2, 3])
    cached = cache.counts()["cached"]
    cache.ask([*second, *PROMPT[:32]])
    assert cache.counts() == {"empty": 11 - cached, "cached": cached, "referenced": 0}
    cache.check()


def test_nobody_waits_for_a_block_that_its_writer_couldnt_publish():
    cache = CacheDriver(num_blocks=12, hasher=BlockHasher(bits=8))
    first, second = two_blocks_with_equal_hashes(bits=8)
    cache.ask([*first, 1])
    writer, late = cache.sequence([*second, 1, 2]), cache.sequence([*second, 3, 4])
    cache.admit(writer)
    assert cache.manager.computed_by_other(late)
    cache.compute(writer)
    assert not cache.manager.computed_by_other(late)
    assert cache.probe([*second, 3, 4]).num_cached_tokens == 0
    cache.check()


@pytest.mark.parametrize("child_ends_first", [False, True])
def test_a_chain_that_couldnt_be_published_stays_hidden_while_others_hold_its_blocks(child_ends_first):
    """Its hash may be free again later, and its tokens published by another sequence. Who went on with the other's
    block then, and hung its own behind it, did so for those that share its blocks and hold nothing of the other."""
    cache = CacheDriver(num_blocks=6, block_size=2, hasher=WorstHasher())
    taker = cache.start([0, 4, 9])  # its first block has the hash of [2, 2]
    parent = cache.start([2, 2, 1, 0, 5])
    child = cache.fork(parent)
    cache.finish(taker)
    cache.ask([2, 2, 7])  # in the taker's blocks: now [2, 2] is published
    assert cache.probe([2, 2, 7, 7]).num_cached_tokens == 3
    first, last = (child, parent) if child_ends_first else (parent, child)
    cache.decode(first, [8])
    cache.check()
    cache.finish(first)
    cache.check()
    cache.decode(last, [6])
    cache.finish(last)
    cache.check()
    assert cache.counts()["referenced"] == 0


def test_a_hidden_chain_that_was_given_up_is_published_when_it_comes_back():
    cache = CacheDriver(num_blocks=4, block_size=2, hasher=WorstHasher())
    taker = cache.start([0, 4])  # it has the hash of [2, 2]
    hidden = cache.start([2, 2, 1])
    cache.preempt(hidden)
    cache.finish(taker)
    cache.ask([9, 9, 8, 8, 7, 7])  # in all blocks there are: the taker's hash is free
    assert cache.admit(hidden)
    cache.compute(hidden)
    assert cache.probe([2, 2, 1, 1]).num_cached_tokens == 2
    cache.finish(hidden)
    assert cache.probe([2, 2, 1, 1]).num_cached_tokens == 3
    cache.check()
