"""What fits now and what doesn't, the watermark, preemption, and what a failed step leaves."""

import pytest

from cache_driver import CacheDriver, table
from paged_chat.engine.cache.block_manager import BlockManager
from paged_chat.engine.cache.prefix_probe import PrefixProbe

PROMPT = list(range(1000, 1200))

# Admission


def test_a_prompt_that_does_not_fit_now_changes_nothing(cache):
    cache.ask(PROMPT[:32])
    running = cache.start(list(range(16 * 8)))
    before = (cache.counts(), [block.ref_count for block in cache.manager.pool.blocks])
    waiting = cache.sequence(PROMPT[:64])
    assert not cache.admit(waiting)
    assert (cache.counts(), [block.ref_count for block in cache.manager.pool.blocks]) == before
    assert (table(waiting), waiting.num_cached_tokens) == ([], None)
    assert (cache.manager.counters.hits, cache.manager.take_copies()) == (0, ())
    cache.finish(running)
    assert cache.admit(waiting)
    assert waiting.num_cached_tokens == 32


def test_a_revived_block_counts_once_against_the_free_ones():
    cache = CacheDriver(num_blocks=5)
    cache.ask(PROMPT[:48])
    assert not cache.admit(cache.sequence(PROMPT[:80]))
    fits = cache.sequence(PROMPT[:64])
    assert cache.admit(fits)
    assert (table(fits), fits.num_cached_tokens) == ([1, 2, 3, 4], 48)
    cache.compute(fits)
    cache.check()


def test_a_block_held_by_another_costs_nothing():
    cache = CacheDriver(num_blocks=5)
    cache.start(PROMPT[:48])
    second = cache.sequence([*PROMPT[:48], 1])
    assert cache.admit(second)
    assert table(second) == [1, 2, 3, 4]
    cache.compute(second)
    cache.check()


def test_the_watermark_keeps_blocks_free_for_those_who_run():
    cache = CacheDriver(num_blocks=11, watermark_blocks=3)
    cache.start(list(range(16 * 4)))
    assert not cache.admit(cache.sequence(PROMPT[:64]), alone=False)  # would leave 2 of 10
    assert cache.admit(cache.sequence(PROMPT[:48]), alone=False)  # leaves 3
    cache.check()


def test_who_is_alone_may_use_the_watermark_too():
    cache = CacheDriver(num_blocks=11, watermark_blocks=3)
    assert cache.admit(cache.sequence(PROMPT[:160]), alone=True)
    assert cache.counts()["referenced"] == 10


def test_the_longest_sequence_fills_the_pool(cache):
    assert cache.manager.max_tokens == 11 * 16
    assert [cache.manager.blocks_for(n) for n in (1, 15, 16, 17, 32, 33)] == [1, 1, 1, 2, 2, 3]
    longest = cache.start(PROMPT[: 11 * 16])
    longest.token_ids.append(1)
    assert not cache.grow(longest)
    assert len(table(longest)) == 11


def test_growing_without_a_free_block_changes_nothing():
    cache = CacheDriver(num_blocks=3)
    parent = cache.start(PROMPT[:20])
    child = cache.fork(parent)
    child.token_ids.append(1)
    assert cache.manager.pool.num_available == 0
    assert not cache.grow(child)  # a copy would need one
    assert table(child) == table(parent) == [1, 2]
    assert [block.ref_count for block in parent.block_table] == [2, 2]
    cache.finish(parent)
    assert cache.grow(child)
    cache.execute()
    cache.check()


# Preemption


@pytest.mark.parametrize("length", [15, 16, 17, 33])
def test_a_preempted_sequence_finds_all_but_its_last_token_again(cache, length):
    sequence = cache.start(PROMPT[:10])
    cache.decode(sequence, PROMPT[10:length])
    for time in (1, 2):
        cache.preempt(sequence)
        assert cache.counts()["referenced"] == 0
        assert (table(sequence), sequence.num_computed_tokens) == ([], 0)
        assert cache.admit(sequence)
        assert sequence.num_computed_tokens == length - 1
        cache.compute(sequence)
        assert cache.manager.counters.recomputed == time
    assert (cache.manager.counters.hits, cache.manager.counters.misses) == (0, 10)
    assert sequence.num_cached_tokens == 0


def test_recomputing_what_was_evicted_meanwhile_is_counted_apart(cache):
    sequence = cache.start(PROMPT[:30])
    cache.decode(sequence, [1, 2, 3])
    cache.preempt(sequence)
    cache.ask(list(range(16 * 11)))
    assert cache.admit(sequence)
    assert sequence.num_computed_tokens == 0
    cache.compute(sequence)
    assert cache.manager.counters.recomputed == 33
    assert cache.manager.counters.misses == 30 + 16 * 11
    assert cache.manager.counters.hits == 0


def test_preempted_within_its_own_step_it_takes_back_its_copy(cache):
    cache.ask(PROMPT[:28])
    sequence = cache.sequence([*PROMPT[:28], 1])
    cache.admit(sequence)
    cache.grow(sequence)
    cache.preempt(sequence)
    assert cache.execute() == ()
    assert cache.counts() == {"empty": 9, "cached": 2, "referenced": 0}
    assert cache.probe(PROMPT[:28]).num_cached_tokens == 27


def test_preempted_after_its_copy_the_other_holder_keeps_the_tail(cache):
    parent = cache.start(PROMPT[:20])
    child = cache.fork(parent)
    child.token_ids.append(1)
    parent.token_ids.append(2)
    assert cache.grow(child)
    assert cache.grow(parent)
    cache.preempt(child)
    assert cache.execute() == ()
    assert table(parent) == [1, 2]


# A step that fails


def test_after_a_failed_step_only_blocks_that_were_whole_before_are_found(cache):
    sequence = cache.start(PROMPT[:20])
    sequence.token_ids.append(1)
    cache.grow(sequence)
    cache.execute_badly()
    assert cache.counts() == {"empty": 10, "cached": 1, "referenced": 0}
    assert cache.probe(PROMPT[:20]).num_cached_tokens == 16


def test_what_is_forgotten_is_computed_again(cache):
    sequence = cache.start(PROMPT[:40])
    cache.manager.forget_tail(sequence)
    assert (sequence.num_computed_tokens, sequence.num_remaining_tokens, table(sequence)) == (32, 8, [1, 2, 3])
    cache.compute(sequence)
    cache.check()


def test_a_manager_caches_keeps_nothing_free_and_remembers_four_pools_of_evictions_unless_told_otherwise():
    manager = BlockManager(3, 16)
    assert manager.pool.evicted.capacity == 4 * 3
    driver = CacheDriver(num_blocks=3)
    driver.manager = manager
    assert driver.admit(driver.sequence(PROMPT[:32]), alone=False)  # both blocks
    driver.grow(driver.running[0])
    driver.execute()
    assert driver.probe(PROMPT[:32]).num_cached_tokens == 31
    assert not driver.admit(driver.sequence([5]), alone=False)


def test_blocks_that_guesses_took_go_back_from_the_last_to_the_first(cache):
    sequence = cache.start(PROMPT[:16])
    sequence.token_ids.append(1)
    cache.grow(sequence)
    assert cache.draft(sequence, [7] * 40, num_right=0)
    assert table(sequence) == [1, 2, 3, 4]
    cache.execute()
    assert table(sequence) == [1, 2]
    late = cache.start(range(16 * 9))
    assert table(late)[-2:] == [4, 3]


def test_one_whose_blocks_were_freed_is_as_it_came(cache):
    sequence = cache.start(PROMPT[:40])
    assert (table(sequence), sequence.num_published_blocks) == ([1, 2, 3], 2)
    cache.preempt(sequence)
    assert (table(sequence), sequence.num_published_blocks, sequence.num_computed_tokens) == ([], 0, 0)


def test_who_asked_whether_to_wait_publishes_what_it_writes_later_as_anybody_does(cache):
    """Only full blocks have hashes: one that isn't full yet gets its hash when it is."""
    cache.admit(cache.sequence(range(40)))
    sequence = cache.sequence(PROMPT[:20])
    assert not cache.manager.computed_by_other(sequence)
    assert cache.admit(sequence)
    cache.compute(sequence)
    cache.decode(sequence, PROMPT[20:32])
    assert cache.probe([*PROMPT[:32], 1]) == PrefixProbe(32, 2, 32, None)
