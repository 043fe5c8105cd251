"""Why a prompt finds no more in the cache than it does."""

import pytest

from cache_driver import CacheDriver
from paged_chat.engine.cache import block_manager
from paged_chat.engine.cache.prefix_probe import CachedCandidate, MissKind, PrefixMiss, PrefixProbe

PROMPT = list(range(100, 200))


def miss_of(probe: PrefixProbe) -> PrefixMiss:
    assert probe.miss is not None
    return probe.miss


def test_all_but_the_last_token_found_is_no_miss(cache: CacheDriver) -> None:
    cache.ask(PROMPT[:40])
    assert cache.probe(PROMPT[:40]) == PrefixProbe(39, 2, 39, None)
    assert cache.probe([5]).miss is None
    assert cache.probe([]).miss is None


def test_the_first_prompt_ever_finds_an_empty_cache(cache: CacheDriver) -> None:
    assert cache.probe(PROMPT[:40]).miss == PrefixMiss(
        kind=MissKind.NEVER_SEEN, token_index=0, block_index=0, token_id=100, is_root_empty=True
    )


@pytest.mark.parametrize("num_common", [17, 31, 36, 47])
def test_a_prompt_that_parts_inside_a_block_names_the_token_on_both_sides(cache: CacheDriver, num_common: int) -> None:
    [*_, third, _] = cache.ask(PROMPT[:50])
    first_two = [block.block_id for block in cache.manager.pool.blocks if block.token_ids[:1] == (116,)]
    block_id = third if num_common > 32 else first_two[0]
    assert cache.probe([*PROMPT[:num_common], 5, 6]).miss == PrefixMiss(
        kind=MissKind.NEVER_SEEN,
        token_index=num_common,
        block_index=num_common // 16,
        token_id=5,
        candidate=CachedCandidate(block_id=block_id, num_common_tokens=num_common % 16, token_id=PROMPT[num_common]),
    )


def test_of_several_cached_continuations_the_one_that_agrees_longest_is_the_candidate(cache: CacheDriver) -> None:
    cache.ask([*PROMPT[:20], 1, 1, 1, 1])
    cache.ask([*PROMPT[:20], 1, 2, 2, 2])
    candidate = miss_of(cache.probe([*PROMPT[:20], 1, 2, 3, 4, 5])).candidate
    assert candidate is not None
    assert (candidate.num_common_tokens, candidate.token_id) == (6, 2)


def test_a_prompt_that_parts_at_a_block_boundary_is_told_what_follows_there(cache: CacheDriver) -> None:
    cache.ask(PROMPT[:40])
    candidate = miss_of(cache.probe([*PROMPT[:32], 5, 6])).candidate
    assert candidate is not None
    assert (candidate.num_common_tokens, candidate.token_id) == (0, 132)


def test_a_prompt_that_goes_on_behind_a_cached_one_differs_in_no_token(cache: CacheDriver) -> None:
    cache.ask(PROMPT[:40])
    miss = miss_of(cache.probe(PROMPT[:60]))
    assert (miss.token_index, miss.token_id) == (40, 140)
    assert miss.candidate is not None
    assert (miss.candidate.num_common_tokens, miss.candidate.token_id) == (8, None)


def test_what_was_given_up_for_the_space_is_told_from_what_never_was(cache: CacheDriver) -> None:
    cache.ask(PROMPT[:40])
    cache.ask(range(1000, 1000 + 16 * 11))  # takes the whole pool
    assert miss_of(cache.probe([*PROMPT[:40], 1, 2])).kind is MissKind.EVICTED
    assert (
        cache.probe([*PROMPT[:40], 1, 2]).miss
        == PrefixMiss(
            kind=MissKind.EVICTED,
            token_index=0,
            block_index=0,
            token_id=100,
            num_evicted_tokens=40,  # the partly filled third block too
            candidate=miss_of(cache.probe(PROMPT[:40])).candidate,
        )
    )
    never = miss_of(cache.probe([5, *PROMPT[:40]]))
    assert (never.kind, never.num_evicted_tokens) == (MissKind.NEVER_SEEN, 0)


def test_a_part_of_a_chat_that_was_evicted_begins_where_the_rest_ends(cache: CacheDriver) -> None:
    cache.ask(PROMPT[:64])
    cache.ask(range(1000, 1000 + 16 * 9))  # two blocks are left: the chat's last ones go first
    miss = miss_of(cache.probe([*PROMPT[:64], 1, 2]))
    assert (miss.kind, miss.token_index, miss.block_index, miss.num_evicted_tokens) == (MissKind.EVICTED, 32, 2, 32)


def test_what_was_evicted_and_is_cached_again_in_part_is_missing_from_there_on(cache: CacheDriver) -> None:
    cache.ask(PROMPT[:40])
    cache.ask(range(1000, 1000 + 16 * 11))  # takes the whole pool
    cache.ask(PROMPT[:10])
    miss = miss_of(cache.probe([*PROMPT[:40], 1, 2]))
    assert (miss.kind, miss.token_index, miss.num_evicted_tokens) == (MissKind.EVICTED, 10, 30)


def test_once_evictions_were_forgotten_nothing_is_called_new() -> None:
    cache = CacheDriver(num_blocks=12, num_evicted_remembered=3)
    cache.ask(PROMPT[:64])
    cache.ask(range(1000, 1000 + 16 * 11))
    assert cache.manager.pool.evicted.num_forgotten == 1
    # Its last block was evicted first, and is the one that was forgotten.
    evicted = miss_of(cache.probe([*PROMPT[:64], 1, 2]))
    assert (evicted.kind, evicted.num_evicted_tokens) == (MissKind.EVICTED, 48)
    assert miss_of(cache.probe([5, 6, 7])).kind is MissKind.NOT_REMEMBERED


def test_another_salt_is_told_that_others_are_there_and_nothing_of_what_they_sent(cache: CacheDriver) -> None:
    cache.ask(PROMPT[:40], salt="ann")
    for prompt in (PROMPT[:40], list(range(5, 45))):
        miss = miss_of(cache.probe(prompt, salt="bob"))
        # The same to the last field, whether Ann has sent this or not.
        assert miss == PrefixMiss(
            kind=MissKind.NEVER_SEEN,
            token_index=0,
            block_index=0,
            token_id=prompt[0],
            is_root_empty=True,
            num_other_roots=1,
        )


def test_who_may_know_what_others_sent_learns_how_much_of_it_is_cached(cache: CacheDriver) -> None:
    cache.ask(PROMPT[:40], salt="ann")
    cache.ask(PROMPT[:20], salt="eve")
    probe = cache.manager.probe(PROMPT[:40], cache.root("bob"), across_roots=True)
    assert (probe.num_cached_tokens, miss_of(probe).num_tokens_elsewhere) == (0, 39)
    assert miss_of(cache.manager.probe([1, 2, 3], cache.root("bob"), across_roots=True)).num_tokens_elsewhere == 0
    # What she finds of her own is more, and isn't elsewhere.
    own = cache.manager.probe([*PROMPT[:30], 7, 8], cache.root("ann"), across_roots=True)
    assert (own.num_cached_tokens, miss_of(own).num_tokens_elsewhere) == (30, 20)


def test_of_many_others_the_newest_are_looked_at(cache: CacheDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_manager, "MAX_ROOTS_SEARCHED", 2)
    for salt, length in (("ann", 40), ("eve", 30), ("joe", 20)):
        cache.ask(PROMPT[:length], salt=salt)
    probe = cache.manager.probe(PROMPT[:40], cache.root("bob"), across_roots=True)
    assert (miss_of(probe).num_tokens_elsewhere, miss_of(probe).num_other_roots) == (30, 3)


def test_who_finds_all_of_it_or_is_alone_has_nothing_to_learn_from_others(cache: CacheDriver) -> None:
    alone = cache.manager.probe(PROMPT[:40], cache.root("bob"), across_roots=True)
    assert miss_of(alone).num_tokens_elsewhere == 0
    cache.ask(PROMPT[:40], salt="ann")
    cache.ask(PROMPT[:40], salt="bob")
    assert cache.manager.probe(PROMPT[:40], cache.root("bob"), across_roots=True) == PrefixProbe(39, 2, 39, None)


def test_an_evicted_root_is_no_other_root_any_more(cache: CacheDriver) -> None:
    cache.ask(PROMPT[:40], salt="ann")
    assert miss_of(cache.probe(PROMPT[:40], "bob")).num_other_roots == 1
    cache.ask(range(1000, 1000 + 16 * 11), salt="bob")
    miss = miss_of(cache.probe(PROMPT[:40], "bob"))
    assert (miss.kind, miss.num_other_roots, miss.is_root_empty) == (MissKind.NEVER_SEEN, 0, False)


def test_admission_reports_what_it_found_before_it_took_anything(cache: CacheDriver) -> None:
    cache.ask(PROMPT[:40])
    expected = cache.probe([*PROMPT[:36], 5, 6])
    sequence = cache.start([*PROMPT[:36], 5, 6])
    assert sequence.prefix == expected
    cache.preempt(sequence)
    assert cache.admit(sequence)
    assert sequence.prefix == expected  # of the first admission
    assert cache.fork(sequence).prefix == expected


def test_without_the_cache_that_is_why() -> None:
    cache = CacheDriver(num_blocks=12, prefix_caching=False)
    cache.ask(PROMPT[:40])
    assert miss_of(cache.probe(PROMPT[:40])).kind is MissKind.CACHE_OFF
    assert cache.probe([5]) == PrefixProbe(0, 0, 0, None)  # its one token is always computed
