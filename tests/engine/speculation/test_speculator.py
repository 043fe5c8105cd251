"""How likely guesses are, what a step costs, and which guesses are therefore verified."""

import pytest

from paged_chat.engine.cache.block_hash import BlockHasher
from paged_chat.engine.request import SamplingParams
from paged_chat.engine.sequence import Sequence
from paged_chat.engine.speculation.speculator import Speculator
from paged_chat.engine.speculation.step_cost import FIRST_ROW_SHARE, StepCost
from paged_chat.engine.speculation.token_guesser import CLASS_STARTS, FIRST_RATES, TokenGuesser

TEXT = list(range(100, 140))
NO_LIMIT = 50


def sequence_of(token_ids: list[int]) -> Sequence:
    return Sequence(
        "r1", SamplingParams(), BlockHasher().root(("weights",)), token_ids, num_prompt_tokens=1, max_len=1000
    )


def guesser_of(token_ids: list[int]) -> TokenGuesser:
    guesser = TokenGuesser()
    guesser.follow(token_ids)
    return guesser


# How likely a guess is


def test_a_longer_match_is_likelier_to_go_on_and_grows_with_each_right_guess():
    assert guesser_of([*TEXT, 7, *TEXT[:2]]).chances(3) == pytest.approx([0.40, 0.40 * 0.45, 0.40 * 0.45 * 0.55])
    assert guesser_of([*TEXT, 7, *TEXT[:12]]).chances(3) == pytest.approx([0.9, 0.81, 0.729])
    assert guesser_of(TEXT).chances(3) == []


def test_guesses_that_nobody_verified_are_counted_too():
    token_ids = [*TEXT, 7, *TEXT[:12]]
    guesser = guesser_of(token_ids)
    for token_id in TEXT[12:28]:
        token_ids.append(token_id)
        guesser.follow(token_ids)
    [chance] = guesser.chances(1)
    assert chance == pytest.approx(1 - 0.1 * (15 / 16) ** 16)


def test_where_guesses_fail_they_are_expected_to():
    token_ids = [1, 2, 3]
    guesser = guesser_of(token_ids)
    for other in range(60):  # the pair comes again and again, each time with something else behind it
        for token_id in (1, 2, 100 + other):
            token_ids.append(token_id)
            guesser.follow(token_ids)
    guesser.follow([*token_ids, 1, 2])
    [chance] = guesser.chances(1)
    assert chance < 0.02


def test_every_class_of_matches_has_a_rate_to_begin_with():
    assert len(FIRST_RATES) == len(CLASS_STARTS)
    assert list(FIRST_RATES) == sorted(FIRST_RATES)


# What a step costs


def test_a_step_of_eight_rows_is_expected_to_take_twice_a_step_of_one():
    assert StepCost().of(1) == 1
    assert StepCost().of(8) == pytest.approx(1 + 7 * FIRST_ROW_SHARE)


@pytest.mark.parametrize("share", [0.0, 0.05, 0.4])
def test_the_cost_of_a_row_is_learnt_from_steps_with_drafts(share):
    cost = StepCost()
    for _ in range(60):
        cost.learn(1, 0, 0.008)
        cost.learn(5, 4, 0.008 * (1 + 4 * share))
    assert cost.of(8) == pytest.approx(1 + 7 * share, rel=0.1)


def test_a_step_that_was_disturbed_counts_little_and_what_is_not_measured_again_fades():
    cost = StepCost()
    for _ in range(20):
        cost.learn(1, 0, 0.008)
    cost.learn(2, 1, 8.0)
    after_it = cost.of(2)
    assert FIRST_ROW_SHARE < after_it - 1 < 2 * FIRST_ROW_SHARE
    for _ in range(500):
        cost.learn(1, 0, 0.008)
    assert cost.of(2) == pytest.approx(1 + FIRST_ROW_SHARE, rel=0.01)


def test_replies_side_by_side_teach_what_one_row_takes():
    cost = StepCost()
    for _ in range(100):
        cost.learn(4, 0, 0.008 * (1 + 3 * FIRST_ROW_SHARE))
    cost.learn(6, 2, 0.008 * (1 + 5 * FIRST_ROW_SHARE))
    assert cost.of(6) == pytest.approx(1 + 5 * FIRST_ROW_SHARE, rel=0.01)


# Which guesses are verified


def test_a_text_that_is_repeated_gets_the_longest_drafts():
    sequence = sequence_of([*TEXT, 7, *TEXT[:12]])
    assert Speculator(7).draft({sequence: NO_LIMIT}, NO_LIMIT) == {sequence: TEXT[12:19]}


def test_two_tokens_in_common_are_worth_a_short_draft_and_nothing_in_common_none():
    likely, hopeless = sequence_of([*TEXT, 7, *TEXT[:2]]), sequence_of(list(TEXT))
    assert Speculator(7).draft({likely: NO_LIMIT}, NO_LIMIT) == {likely: [102]}
    assert Speculator(7).draft({hopeless: NO_LIMIT}, NO_LIMIT) == {}


def test_a_draft_keeps_to_the_room_of_its_sequence_and_to_the_budget():
    sequence = sequence_of([*TEXT, 7, *TEXT[:12]])
    assert Speculator(7).draft({sequence: 3}, NO_LIMIT) == {sequence: TEXT[12:15]}
    assert Speculator(7).draft({sequence: NO_LIMIT}, 2) == {sequence: TEXT[12:14]}
    assert Speculator(7).draft({sequence: 0}, NO_LIMIT) == {}
    assert Speculator(7).draft({sequence: NO_LIMIT}, 0) == {}
    assert Speculator(4).draft({sequence: NO_LIMIT}, NO_LIMIT) == {sequence: TEXT[12:16]}


def test_the_rows_of_a_step_are_shared_by_how_likely_guesses_are():
    likely, less_likely = sequence_of([*TEXT, 7, *TEXT[:12]]), sequence_of([*TEXT, 7, *TEXT[:6]])
    drafts = Speculator(7).draft({less_likely: NO_LIMIT, likely: NO_LIMIT}, NO_LIMIT)
    # Eight rows, two of them the sequences' own. 0.9, 0.81, 0.73, 0.66, 0.59 and so on against 0.70 and 0.49.
    assert drafts == {likely: TEXT[12:17], less_likely: TEXT[6:7]}


def test_where_as_many_run_as_a_step_with_drafts_has_rows_nothing_is_guessed():
    rooms = {sequence_of([*TEXT, 7, *TEXT[:12]]): NO_LIMIT for _ in range(8)}
    assert Speculator(7).draft(rooms, NO_LIMIT) == {}
    assert all(sequence.guesser is None for sequence in rooms)  # nor is anything read for it


def test_where_rows_are_dear_only_what_is_nearly_certain_is_drafted():
    speculator = Speculator(7)
    for _ in range(100):
        speculator.learn(1, 0, 0.008)
        speculator.learn(2, 1, 0.008 * 1.95)
    likely, less_likely = sequence_of([*TEXT, 7, *TEXT[:12]]), sequence_of([*TEXT, 7, *TEXT[:8]])
    assert speculator.draft({less_likely: NO_LIMIT}, NO_LIMIT) == {}
    assert speculator.draft({likely: NO_LIMIT}, NO_LIMIT) == {}  # 1.9 tokens for 1.9 steps
    for _ in range(100):
        speculator.learn(1, 0, 0.008)
        speculator.learn(2, 1, 0.008 * 1.85)
    assert speculator.draft({likely: NO_LIMIT}, NO_LIMIT) == {likely: [112]}
    assert speculator.draft({less_likely: NO_LIMIT}, NO_LIMIT) == {}


def test_a_sequence_that_grew_meanwhile_is_read_on_from_where_it_was():
    speculator, sequence = Speculator(7), sequence_of([*TEXT, 7])
    assert speculator.draft({sequence: NO_LIMIT}, NO_LIMIT) == {}
    sequence.token_ids += TEXT[:10]
    drafts = speculator.draft({sequence: NO_LIMIT}, NO_LIMIT)
    assert drafts == {sequence: TEXT[10:17]}
