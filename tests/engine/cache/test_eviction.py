"""Blocks that are freed, revived by a hit, and given up for the space, in which order."""

from cache_driver import CacheDriver, table

PROMPT = list(range(1000, 1200))


# Free, revive, evict


def test_a_finished_sequences_blocks_stay_cached_and_a_hit_revives_them(cache):
    cache.ask(PROMPT[:40])
    assert cache.counts() == {"empty": 8, "cached": 3, "referenced": 0}
    second = cache.start([*PROMPT[:32], 1])
    assert table(second)[:2] == [1, 2]
    assert cache.counts() == {"empty": 7, "cached": 1, "referenced": 3}
    assert cache.manager.pool.num_evictions == 0


def test_the_order_of_eviction():
    cache = CacheDriver(num_blocks=12)
    cache.ask(PROMPT[:40])  # full 1, 2; tail 3
    cache.ask(list(range(20)))  # full 4; tail 5
    cache.ask([*PROMPT[:16], 1])  # uses 1 again, and leaves the tail 6
    # Nothing worth keeping, then partial tails by last use, then full blocks by last use, tail before head.
    assert cache.available_ids() == [7, 8, 9, 10, 11, 3, 5, 6, 2, 4, 1]


def test_a_block_that_was_copied_from_counts_as_used():
    cache = CacheDriver(num_blocks=7)
    cache.ask(PROMPT[:16])
    cache.ask(list(range(16)))
    cache.ask([*PROMPT[16:32], 1])  # full 3; tail 4
    cache.ask([*PROMPT[:10], 1])  # copies a part of 1, and leaves the tail 5
    assert cache.available_ids() == [6, 4, 5, 2, 3, 1]


def test_what_is_evicted_is_found_no_more_and_what_is_kept_still_is(cache):
    cache.ask(PROMPT[:48])
    cache.ask(list(range(16 * 9)))  # takes the 8 empty blocks, and the tail of the first
    assert cache.manager.pool.num_evictions == 1
    assert cache.probe(PROMPT[:48]).num_cached_tokens == 32
    assert cache.probe(list(range(16 * 9))).num_cached_tokens == 16 * 9 - 1


def test_nothing_is_evicted_while_an_empty_block_is_left(cache):
    for number in range(5):
        cache.ask([number] * 32)
    assert cache.manager.pool.num_evictions == 0
    cache.ask([9] * 32)
    assert cache.manager.pool.num_evictions == 1


def test_the_null_block_is_in_no_table():
    cache = CacheDriver(num_blocks=4)
    seen = set()
    for number in range(40):
        seen.update(cache.ask([number % 7] * (1 + number % 48)))
        cache.check()
    assert seen == {1, 2, 3}


def test_a_copy_source_may_be_the_very_block_that_is_taken():
    cache = CacheDriver(num_blocks=2)
    cache.ask(PROMPT[:16])
    second = cache.sequence(PROMPT[:16])
    assert cache.admit(second)
    assert (second.num_cached_tokens, table(second)) == (15, [1])
    assert cache.compute(second) == ()
    cache.check()


def test_a_copy_source_may_be_taken_for_other_tokens_in_the_same_step():
    cache = CacheDriver(num_blocks=3)
    cache.ask(PROMPT[:16])
    second = cache.sequence(PROMPT[:15] + list(range(10)))
    assert cache.admit(second)
    assert (second.num_cached_tokens, table(second)) == (15, [2, 1])
    assert cache.compute(second) == ((1, 2),)
    cache.check()


def test_a_source_freed_and_taken_by_another_before_the_copy_is_done():
    cache = CacheDriver(num_blocks=5)
    cache.ask(PROMPT[:16])
    second, third = cache.sequence([*PROMPT[:10], 1]), cache.sequence(list(range(48)))
    assert cache.admit(second)
    assert cache.admit(third, alone=False)
    assert (second.num_cached_tokens, table(second), table(third)) == (10, [2], [3, 4, 1])
    cache.grow(second)
    cache.grow(third)
    assert cache.execute() == ((1, 2),)
    cache.check()
