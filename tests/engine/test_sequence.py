"""What a sequence counts, and what one that parts from another begins with."""

from paged_chat.engine.cache.block import Block, Root
from paged_chat.engine.request import SamplingParams
from paged_chat.engine.sequence import Sequence, SequenceStatus
from paged_chat.engine.speculation.token_guesser import TokenGuesser


def sequence(**changes: object) -> Sequence:
    """A prompt of 5 tokens, a reply that was begun with 2 and has 3 more; 8 of the 10 are computed."""
    values = {
        "request_id": "r1",
        "params": SamplingParams(n=4),
        "root": Root(b"root", b"hash"),
        "token_ids": list(range(10)),
        "num_prompt_tokens": 5,
        "num_start_tokens": 2,
        "max_len": 100,
        "seed": 42,
        "num_forks": 3,
        "arrival": 7,
        "num_computed_tokens": 8,
        "num_cached_tokens": 4,
        "last_served": 6,
    }
    return Sequence(**{**values, **changes})  # type: ignore[arg-type]


def test_prompt_given_and_generated_tokens_are_told_apart():
    whole = sequence()
    assert (whole.num_given_tokens, whole.num_generated_tokens, whole.num_remaining_tokens) == (7, 3, 2)
    assert whole.output_token_ids == [5, 6, 7, 8, 9]
    assert whole.num_places == 4


def test_requests_stand_in_order_of_arrival_and_their_replies_by_number():
    arrivals = [(2, 0), (1, 1), (1, 0), (2, 1)]
    made = [sequence(arrival=arrival, sample=sample) for arrival, sample in arrivals]
    assert sorted(each.order for each in made) == [(1, 0), (1, 1), (2, 0), (2, 1)]


def test_each_reply_has_the_seed_of_its_number_whoever_it_parted_from():
    first = sequence()
    third = first.fork(3, SequenceStatus.RUNNING)
    second = third.fork(2, SequenceStatus.RUNNING)
    assert [each.seed for each in (first, second, third)] == [42, 44, 45]
    assert [each.order for each in (first, second, third)] == [(7, 0), (7, 2), (7, 3)]


def test_a_fork_begins_with_what_was_computed_and_holds_no_block_yet():
    parent = sequence(num_preemptions=2, block_hashes=[b"one"], num_drafted_tokens=9, num_steps_deferred=1)
    child = parent.fork(1, SequenceStatus.WAITING)
    kept = {"request_id", "params", "root", "token_ids", "num_prompt_tokens", "max_len", "num_start_tokens", "arrival"}
    kept |= {"num_computed_tokens", "num_cached_tokens", "prefix", "num_preemptions", "last_served", "block_hashes"}
    assert {name for name in kept if getattr(child, name) != getattr(parent, name)} == set()
    assert (child.status, child.block_table, child.num_published_blocks) == (SequenceStatus.WAITING, [], 0)
    assert (child.num_forks, child.num_drafted_tokens, child.num_steps_deferred) == (0, 0, 0)
    child.token_ids.append(1)
    child.block_hashes.append(b"two")
    assert (len(parent.token_ids), parent.block_hashes) == (10, [b"one"])


def test_a_fork_leaves_behind_what_is_its_parents_alone():
    parent = sequence(block_table=[Block(1)], num_published_blocks=1, is_hidden=True, num_accepted_tokens=4)
    parent.is_suspect = parent.is_idle = True
    parent.guesser = TokenGuesser()
    child = parent.fork(1, SequenceStatus.RUNNING)
    assert (child.block_table, child.num_published_blocks, child.is_hidden) == ([], 0, False)
    assert (child.is_suspect, child.is_idle, child.num_accepted_tokens) == (False, False, 0)
    assert child.guesser is None
    assert child.history is not parent.history


def test_a_fresh_sequence_waits_and_has_nothing():
    fresh = Sequence("r1", SamplingParams(), Root(b"root", b"hash"), [1, 2], num_prompt_tokens=2, max_len=9)
    assert (fresh.status, fresh.sample, fresh.seed, fresh.arrival) == (SequenceStatus.WAITING, 0, 0, 0)
    assert (fresh.num_computed_tokens, fresh.num_published_blocks, fresh.num_places) == (0, 0, 1)
    assert (fresh.num_cached_tokens, fresh.prefix, fresh.guesser) == (None, None, None)
    assert (fresh.num_preemptions, fresh.num_steps_deferred, fresh.last_served) == (0, 0, -1)
    assert (fresh.num_start_tokens, fresh.num_drafted_tokens, fresh.num_accepted_tokens) == (0, 0, 0)
    assert not fresh.is_idle
    assert not fresh.is_suspect
