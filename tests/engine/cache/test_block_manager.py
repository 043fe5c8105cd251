"""The block manager: what a sequence reuses, what it must compute, when two of them part.

Blocks hold 16 tokens. The driver's simulated memory checks every slot after each story."""

import pytest

from cache_driver import CacheDriver, table
from paged_chat.engine.cache.prefix_probe import PrefixProbe

PROMPT = list(range(1000, 1200))

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
    assert cache.available_ids() == [3, 1, 2]


def test_the_longest_of_several_continuations_is_reused(cache):
    cache.ask(PROMPT[:20])
    cache.ask([*PROMPT[:18], 1, 1, 1])
    cache.ask([*PROMPT[:18], 1, 2])
    assert cache.probe([*PROMPT[:18], 1, 1, 2, 9]).num_cached_tokens == 20
    assert cache.probe([*PROMPT[:18], 1, 2, 2, 9]).num_cached_tokens == 20
    assert cache.probe([*PROMPT[:18], 1, 3, 3, 9]).num_cached_tokens == 19
    assert cache.probe([*PROMPT[:18], 9, 9, 9]).num_cached_tokens == 18


def test_a_part_of_a_block_that_somebody_holds_is_copied(cache):
    first = cache.start(PROMPT[:40])
    second = cache.sequence([*PROMPT[:20], 7])
    assert cache.admit(second)
    assert (table(first), table(second)) == ([1, 2, 3], [1, 4])
    assert cache.compute(second) == ((2, 4),)


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
    cache.ask(PROMPT[:5])
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


def test_who_finds_all_its_whole_blocks_waits_for_nobody(cache):
    cache.ask(PROMPT[:32])
    cache.admit(cache.sequence(range(40)))
    assert not cache.manager.computed_by_other(cache.sequence(PROMPT[:40]))


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


def test_a_tail_that_a_whole_block_begins_with_is_not_kept_beside_it(cache):
    cache.ask(PROMPT[:32])
    cache.ask(PROMPT[:20])
    assert cache.counts() == {"empty": 9, "cached": 2, "referenced": 0}
    assert cache.probe(PROMPT[:32]).num_cached_tokens == 31
