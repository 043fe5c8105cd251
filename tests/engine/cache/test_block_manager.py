"""The block manager: what a sequence reuses, what it must compute, when two of them part.

Blocks hold 16 tokens. The driver's simulated memory checks every slot after each story.
"""

import itertools

import pytest

from cache_driver import CacheDriver, WorstHasher, table
from paged_chat.engine.cache.block_hash import BlockHasher
from paged_chat.engine.cache.prefix_probe import PrefixProbe

PROMPT = list(range(1000, 1200))


@pytest.fixture
def cache() -> CacheDriver:
    return CacheDriver(num_blocks=12)


@pytest.fixture(autouse=True)
def _check(cache: CacheDriver) -> object:
    yield
    cache.check()


def available_ids(cache: CacheDriver) -> list[int]:
    """The free blocks in the order in which they are taken; nothing is left of the cache then."""
    pool = cache.manager.pool
    return [pool.take().block_id for _ in range(pool.num_available)]


# Match and allocate


def test_a_first_prompt_finds_nothing_and_gets_blocks_for_all_of_it(cache):
    sequence = cache.sequence(PROMPT[:40])
    assert cache.admit(sequence)
    assert table(sequence) == [1, 2, 3]
    assert (sequence.num_computed_tokens, sequence.num_cached_tokens) == (0, 0)
    assert cache.counts() == {"empty": 8, "cached": 0, "referenced": 3}


@pytest.mark.parametrize(
    ("length", "first_table", "second_table", "copies"),
    [
        (1, [1], [2], ()),
        (2, [1], [2], ((1, 2),)),
        (15, [1], [2], ((1, 2),)),
        (16, [1], [2], ((1, 2),)),
        (17, [1, 2], [1, 3], ()),
        (18, [1, 2], [1, 3], ((2, 3),)),
        (31, [1, 2], [1, 3], ((2, 3),)),
        (32, [1, 2], [1, 3], ((2, 3),)),
        (33, [1, 2, 3], [1, 2, 4], ()),
        (48, [1, 2, 3], [1, 2, 4], ((3, 4),)),
    ],
)
def test_a_prompt_sent_twice_recomputes_only_its_last_token(cache, length, first_table, second_table, copies):
    assert cache.ask(PROMPT[:length]) == first_table
    second = cache.sequence(PROMPT[:length])
    assert cache.probe(PROMPT[:length]).num_cached_tokens == length - 1
    assert cache.admit(second)
    assert second.num_cached_tokens == second.num_computed_tokens == length - 1
    assert table(second) == second_table
    assert cache.compute(second) == copies
    assert (cache.manager.counters.hits, cache.manager.counters.misses) == (length - 1, length + 1)


def test_a_block_that_is_computed_again_is_given_back_for_the_one_already_published(cache):
    cache.ask(PROMPT[:32])
    second = cache.start(PROMPT[:32])
    assert table(second) == [1, 2]
    assert cache.counts() == {"empty": 9, "cached": 0, "referenced": 2}


def test_an_edit_in_the_middle_keeps_every_token_before_it(cache):
    first = cache.ask(PROMPT[:60])
    edited = cache.sequence([*PROMPT[:40], 7, *PROMPT[41:60]])
    assert cache.admit(edited)
    assert edited.num_cached_tokens == 40
    assert table(edited)[:2] == first[:2] == [1, 2]
    assert cache.compute(edited) == ((3, 5),)


@pytest.mark.parametrize("num_common", [0, 1, 5, 15, 16, 17, 21, 31, 32, 47, 49])
def test_hits_count_in_tokens(cache, num_common):
    cache.ask(PROMPT[:50])
    assert cache.probe([*PROMPT[:num_common], 1, 2, 3]).num_cached_tokens == num_common


def test_probe_tells_tokens_and_whole_blocks_and_changes_nothing(cache):
    cache.ask(PROMPT[:40])
    before = (cache.counts(), cache.manager.counters.hits, cache.manager.counters.misses, cache.manager.take_copies())
    assert cache.probe([*PROMPT[:36], 5]) == PrefixProbe(36, 2, 36)
    assert cache.probe(PROMPT[:40]) == PrefixProbe(39, 2, 39)
    assert cache.probe([5]) == PrefixProbe(0, 0, 0)
    assert cache.probe([]) == PrefixProbe(0, 0, 0)
    assert before == (
        cache.counts(),
        cache.manager.counters.hits,
        cache.manager.counters.misses,
        cache.manager.take_copies(),
    )


def test_probe_counts_no_use():
    cache = CacheDriver(num_blocks=4)
    cache.ask(PROMPT[:16])
    cache.ask(list(range(16)))
    cache.probe(PROMPT[:16])
    assert available_ids(cache) == [3, 1, 2]


def test_the_longest_of_several_continuations_is_reused(cache):
    cache.ask(PROMPT[:20])
    cache.ask([*PROMPT[:18], 1, 1, 1])
    cache.ask([*PROMPT[:18], 1, 2])
    assert cache.probe([*PROMPT[:18], 1, 1, 2, 9]).num_cached_tokens == 20
    assert cache.probe([*PROMPT[:18], 1, 2, 2, 9]).num_cached_tokens == 20
    assert cache.probe([*PROMPT[:18], 1, 3, 3, 9]).num_cached_tokens == 19
    assert cache.probe([*PROMPT[:18], 9, 9, 9]).num_cached_tokens == 18


def test_a_second_block_alike_behind_another_first_one_is_no_match(cache):
    cache.ask(PROMPT[:48])
    other = list(range(16)) + PROMPT[16:48]
    assert cache.probe(other).num_cached_tokens == 0
    cache.ask(other)
    assert cache.probe(other).num_cached_tokens == 47


def test_salts_share_nothing(cache):
    cache.ask(PROMPT[:32], salt="ann")
    assert cache.probe(PROMPT[:32], salt="bob").num_cached_tokens == 0
    assert cache.probe(PROMPT[:32]).num_cached_tokens == 0
    assert cache.probe(PROMPT[:32], salt="ann").num_cached_tokens == 31


def test_without_prefix_caching_nothing_is_kept():
    cache = CacheDriver(num_blocks=12, prefix_caching=False)
    cache.ask(PROMPT[:40])
    assert cache.counts() == {"empty": 11, "cached": 0, "referenced": 0}
    second = cache.start(PROMPT[:40])
    assert second.num_cached_tokens == 0
    cache.check()


# Publish after compute


def test_a_block_is_found_only_once_its_kv_is_written(cache):
    first = cache.sequence(PROMPT[:40])
    cache.admit(first)
    assert cache.probe(PROMPT[:40]).num_cached_tokens == 0
    cache.compute(first, 15)
    assert cache.probe(PROMPT[:40]).num_cached_tokens == 0
    cache.compute(first, 1)
    assert cache.probe(PROMPT[:40]).num_cached_tokens == 16
    cache.compute(first, 20)
    assert cache.probe(PROMPT[:40]).num_cached_tokens == 32
    cache.compute(first)
    assert cache.probe(PROMPT[:40]).num_cached_tokens == 32  # the tail still grows
    cache.finish(first)
    assert cache.probe(PROMPT[:40]).num_cached_tokens == 39


def test_a_running_sequences_blocks_are_shared_while_it_runs(cache):
    first = cache.start(PROMPT[:40])
    second = cache.start([*PROMPT[:32], 1])
    assert second.num_cached_tokens == 32
    assert table(second) == [1, 2, 4]
    assert [block.ref_count for block in second.block_table] == [2, 2, 1]
    assert cache.manager.pool.num_shared == 2
    cache.finish(first)
    assert [block.ref_count for block in second.block_table] == [1, 1, 1]


def test_two_that_compute_the_same_at_once_end_up_sharing(cache):
    first, second = cache.sequence(PROMPT[:40]), cache.sequence(PROMPT[:40])
    cache.admit(first)
    cache.admit(second)
    assert (table(first), table(second)) == ([1, 2, 3], [4, 5, 6])
    cache.grow(first)
    cache.grow(second)
    cache.execute()
    assert (table(first), table(second)) == ([1, 2, 3], [1, 2, 6])
    assert cache.counts() == {"empty": 7, "cached": 0, "referenced": 4}


def test_a_request_learns_that_its_next_block_is_being_computed(cache):
    first, second = cache.sequence(PROMPT[:40]), cache.sequence(PROMPT[:40])
    other = cache.sequence(list(range(40)))
    cache.admit(first)
    assert cache.manager.computed_by_other(second)
    assert not cache.manager.computed_by_other(other)
    cache.compute(first, 16)
    assert cache.manager.computed_by_other(second)
    cache.compute(first, 16)
    # Only the tail is left, and a tail is nobody's to wait for: it is published when its sequence ends.
    assert not cache.manager.computed_by_other(second)


@pytest.mark.parametrize("end", ["finish", "preempt"])
def test_nobody_waits_for_a_sequence_that_stopped_computing(cache, end):
    first, second = cache.sequence(PROMPT[:40]), cache.sequence(PROMPT[:40])
    cache.admit(first)
    cache.compute(first, 5)
    getattr(cache, end)(first)
    assert not cache.manager.computed_by_other(second)


# Generated tokens


def test_blocks_that_fill_up_while_decoding_are_found_by_the_next_turn(cache):
    reply = list(range(50, 80))
    cache.ask(PROMPT[:10], reply)
    next_turn = PROMPT[:10] + reply + [3, 3]
    # The last token of the reply was sampled and never read by the model.
    assert cache.probe(next_turn).num_cached_tokens == 10 + 29
    assert cache.probe(next_turn).num_cached_blocks == 2


def test_a_longer_tail_takes_the_place_of_the_one_it_continues(cache):
    cache.ask(PROMPT[:20])
    assert cache.counts() == {"empty": 9, "cached": 2, "referenced": 0}
    cache.ask(PROMPT[:24])
    assert cache.counts() == {"empty": 9, "cached": 2, "referenced": 0}
    assert cache.probe(PROMPT[:24]).num_cached_tokens == 23


# Fork and copy-on-write


def test_a_fork_shares_every_block_the_partial_tail_too(cache):
    parent = cache.start(PROMPT[:20])
    child = cache.fork(parent)
    assert table(child) == table(parent) == [1, 2]
    assert [block.ref_count for block in parent.block_table] == [2, 2]
    assert cache.counts() == {"empty": 9, "cached": 0, "referenced": 2}


def test_each_writer_that_parts_copies_the_tail_and_the_last_owner_writes_in_place(cache):
    first = cache.start(PROMPT[:20])
    second, third = cache.fork(first), cache.fork(first)
    copies = []
    for token_id, sequence in enumerate((first, second, third)):
        sequence.token_ids.append(token_id)
        copies.append(cache.compute(sequence))
    assert copies == [((2, 3),), ((2, 4),), ()]
    assert [table(s) for s in (first, second, third)] == [[1, 3], [1, 4], [1, 2]]
    assert cache.manager.counters.copies == 2
    assert [block.ref_count for block in cache.manager.pool.blocks[1:5]] == [3, 1, 1, 1]


def test_three_that_part_in_one_step_copy_twice(cache):
    first = cache.start(PROMPT[:20])
    family = [first, cache.fork(first), cache.fork(first)]
    for token_id, sequence in enumerate(family):
        sequence.token_ids.append(token_id)
        assert cache.grow(sequence)
    assert cache.execute() == ((2, 3), (2, 4))
    assert [table(s) for s in family] == [[1, 3], [1, 4], [1, 2]]


def test_after_the_copy_each_writes_its_own_block(cache):
    parent = cache.start(PROMPT[:20])
    child = cache.fork(parent)
    cache.decode(parent, range(30))
    cache.decode(child, range(100, 130))
    assert cache.manager.counters.copies == 1
    assert cache.manager.pool.num_shared == 1


def test_a_fork_at_a_blocks_end_needs_no_copy(cache):
    parent = cache.start(PROMPT[:32])
    child = cache.fork(parent)
    cache.decode(parent, [1])
    cache.decode(child, [2])
    assert (table(parent), table(child)) == ([1, 2, 3], [1, 2, 4])
    assert cache.manager.counters.copies == 0


def test_the_one_left_alone_writes_in_place(cache):
    parent = cache.start(PROMPT[:20])
    child = cache.fork(parent)
    cache.finish(parent)
    cache.decode(child, [5])
    assert table(child) == [1, 2]
    assert cache.manager.counters.copies == 0


def test_a_copy_made_for_reuse_leaves_its_source_as_it_was(cache):
    cache.ask(PROMPT[:28])
    for number in range(3):
        cache.ask(PROMPT[:20] + [number] * 10)
    assert cache.probe(PROMPT[:28]).num_cached_tokens == 27
    assert cache.manager.counters.copies == 3


def test_a_shared_tail_is_not_kept_by_the_first_to_leave(cache):
    parent = cache.start(PROMPT[:20])
    child = cache.fork(parent)
    cache.finish(child)
    assert cache.probe(PROMPT[:20]).num_cached_tokens == 16
    cache.decode(parent, [1, 2])
    cache.finish(parent)
    assert cache.probe([*PROMPT[:20], 1, 2, 3]).num_cached_tokens == 22


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
    assert available_ids(cache) == [7, 8, 9, 10, 11, 3, 5, 6, 2, 4, 1]


def test_a_block_that_was_copied_from_counts_as_used():
    cache = CacheDriver(num_blocks=7)
    cache.ask(PROMPT[:16])
    cache.ask(list(range(16)))
    cache.ask([*PROMPT[16:32], 1])  # full 3; tail 4
    cache.ask([*PROMPT[:10], 1])  # copies a part of 1, and leaves the tail 5
    assert available_ids(cache) == [6, 4, 5, 2, 3, 1]


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
