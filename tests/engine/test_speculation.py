"""Tokens guessed ahead: the replies are those without, in fewer steps, and blocks hold what was accepted alone.

Blocks hold 16 tokens where nothing else is said.
"""

import pytest
import torch

from foretelling import ForetellingDrafter, from_logits
from paged_chat.engine.request import SamplingParams
from paged_chat.engine.sampler import uniform
from slot_runner import (
    VOCAB_SIZE,
    Listener,
    SlotRunner,
    ask,
    ask_all,
    greedy,
    make_core,
    preempt,
    reply_to,
    script,
    sequence_of,
)
from tiny_tokenizer import spelled, tokenizer_in

PROMPT = [7, 3, 9, 3, 1, 4, 1, 5]


# Steps


def test_right_guesses_save_their_steps():
    runner, drafter = SlotRunner(), ForetellingDrafter(length=3, num_right=3)
    reply = ask(make_core(runner, drafter=drafter), PROMPT, greedy(9))
    assert tuple(reply.token_ids) == reply_to(PROMPT, 9)
    # A token from the prompt, then four at a time: each row but the last was guessed from the one before.
    assert runner.steps == [[8], [1, 1, 1, 1], [1, 1, 1, 1]]
    assert (reply.stats.num_drafted_tokens, reply.stats.num_accepted_tokens) == (6, 6)
    assert reply.stats.num_generated_tokens == 9


def test_a_guess_counts_up_to_the_first_wrong_one():
    runner, drafter = SlotRunner(), ForetellingDrafter(length=3, num_right=1)
    reply = ask(make_core(runner, drafter=drafter), PROMPT, greedy(9))
    assert tuple(reply.token_ids) == reply_to(PROMPT, 9)
    # Two tokens a step: 1, 3, 5, 7, 9; the last step has room for one guess.
    assert [len(step) for step in runner.steps] == [1, 4, 4, 4, 2]
    assert (reply.stats.num_drafted_tokens, reply.stats.num_accepted_tokens) == (10, 4)


def test_wrong_guesses_cost_rows_and_nothing_else():
    runner, drafter = SlotRunner(), ForetellingDrafter(length=5, num_right=0)
    core = make_core(runner, drafter=drafter)
    reply = ask(core, PROMPT, greedy(20))
    assert tuple(reply.token_ids) == reply_to(PROMPT, 20)
    assert len(runner.steps) == 20
    assert (core.snapshot().drafted_tokens, core.snapshot().accepted_tokens) == (reply.stats.num_drafted_tokens, 0)


def test_a_first_token_waits_for_no_guess():
    runner, drafter = SlotRunner(), ForetellingDrafter(length=3, num_right=3)
    core = make_core(runner, drafter=drafter)
    ask(core, PROMPT, greedy(1))
    ask(core, PROMPT, greedy(4))  # all but the last token of the prompt is cached
    assert runner.steps == [[8], [1], [1, 1, 1]]


def test_nothing_is_guessed_in_a_step_that_computes_a_prompt():
    runner, drafter = SlotRunner(), ForetellingDrafter(length=3, num_right=0)
    core = make_core(runner, max_num_batched_tokens=8, drafter=drafter)
    listener = Listener(core)
    core.submit(PROMPT, greedy(12))
    listener.step()
    core.submit([9, *range(13)], greedy(1))
    for _ in range(4):
        listener.step()
    assert runner.steps == [[8], [1, 7], [1, 7], [1, 1, 1, 1], [1, 1, 1, 1]]


def test_nothing_is_guessed_beside_a_prompt_whatever_the_budget_leaves():
    runner, drafter = SlotRunner(), ForetellingDrafter(length=3, num_right=0)
    core = make_core(runner, drafter=drafter)
    listener = Listener(core)
    core.submit(PROMPT, greedy(12))
    listener.step()
    core.submit([9, *range(13)], greedy(1))
    listener.step()
    listener.step()
    assert runner.steps == [[8], [1, 14], [1, 1, 1, 1]]


def test_there_is_room_for_guesses_behind_a_first_token_as_far_as_a_reply_may_go():
    drafter = ForetellingDrafter(length=0)
    core = make_core(drafter=drafter)
    listener = Listener(core)
    core.submit(PROMPT, greedy(4))
    core.submit([9, *PROMPT], greedy(1))
    core.submit([8, *PROMPT], SamplingParams(beam_width=2, max_tokens=4))
    listener.step()
    assert drafter.rooms == []  # prompts
    listener.run()
    # A step gives one token more than it drafts; a beam's next token isn't drawn from its own logits alone.
    assert drafter.rooms == [[2, 0, 0], [1, 0, 0], [0, 0, 0]]


def test_what_a_reply_was_begun_with_is_not_drawn_but_counts_to_its_length():
    drafter = ForetellingDrafter(length=0)
    listener = Listener(make_core(drafter=drafter))
    for _ in range(2):
        listener.core.submit(PROMPT, greedy(6), reply_start=[2, 6])
        listener.run()
    # The second time all but one token is cached: the first that is drawn waits for no guess.
    assert drafter.rooms == [[2], [1], [0], [0], [2], [1], [0]]


def test_drafts_keep_to_the_budget():
    runner, drafter = SlotRunner(), ForetellingDrafter(length=6, num_right=6)
    reply = ask(make_core(runner, max_num_batched_tokens=3, drafter=drafter), PROMPT[:3], greedy(10))
    assert tuple(reply.token_ids) == reply_to(PROMPT[:3], 10)
    assert runner.steps == [[3], [1, 1, 1], [1, 1, 1], [1, 1, 1]]


def test_the_drafter_is_told_what_steps_of_decodes_took():
    drafter = ForetellingDrafter(length=2, num_right=2)
    ask(make_core(drafter=drafter), PROMPT, greedy(5))
    assert drafter.learnt == [(3, 2), (1, 0)]


@pytest.mark.parametrize(("length", "num_drafted"), [(9, 6), (10, 5), (14, 1), (15, 0)])
def test_drafts_are_cut_to_the_blocks_that_are_free(length, num_drafted):
    """Each of two requests holds one of two blocks; the next token goes to position `length`, guesses behind it."""
    runner, drafter = SlotRunner(), ForetellingDrafter(length=6, num_right=0)
    core = make_core(runner, num_blocks=3, drafter=drafter)
    listener = Listener(core)
    core.submit([1] * length, greedy(20))
    core.submit([2] * 4, greedy(20))
    listener.step()
    listener.step()
    assert [len(draft) for draft in drafter.drafts] == [6, 6]
    assert len(runner.steps[1]) == 1 + num_drafted + 1 + 6
    assert core.snapshot().drafted_tokens == num_drafted + 6
    assert core.snapshot().preemptions == 0


# Where a reply ends


def test_a_reply_never_gets_longer_than_it_may():
    for max_tokens in range(1, 12):
        reply = ask(make_core(drafter=ForetellingDrafter(length=4, num_right=4)), PROMPT, greedy(max_tokens))
        assert tuple(reply.token_ids) == reply_to(PROMPT, max_tokens)
        assert reply.finish_reason == "length"


def test_at_the_end_of_the_window_and_of_the_pool_drafts_get_shorter():
    drafter = ForetellingDrafter(length=6, num_right=6)
    windowed = make_core(max_model_len=20, drafter=drafter)
    assert tuple(ask(windowed, PROMPT, greedy(100)).token_ids) == reply_to(PROMPT, 12)
    assert [len(draft) for draft in drafter.drafts] == [6, 3]
    full = make_core(num_blocks=3, drafter=ForetellingDrafter(length=6, num_right=0))
    assert tuple(ask(full, PROMPT, greedy(100)).token_ids) == reply_to(PROMPT, 32 + 1 - len(PROMPT))
    endless = make_core(max_model_len=20, drafter=ForetellingDrafter(length=6, num_right=6))
    assert tuple(ask(endless, PROMPT, SamplingParams(temperature=0.0, max_tokens=None)).token_ids) == reply_to(
        PROMPT, 12
    )


@pytest.mark.parametrize("place", range(1, 8))
def test_an_end_token_inside_a_draft_ends_the_reply_there(place):
    reply = reply_to(PROMPT, 12)
    first = next(i for i in range(place, 12) if reply[i] not in reply[:i])
    core = make_core(end_token_ids=[reply[first]], drafter=ForetellingDrafter(length=6, num_right=6))
    heard = ask(core, PROMPT, greedy(12))
    assert (tuple(heard.token_ids), heard.finish_reason) == (reply[: first + 1], "stop")
    assert core.snapshot().num_referenced == 0


@pytest.mark.parametrize("length", [1, 3, 6, 9])
def test_a_stop_string_inside_a_draft_ends_the_reply_and_nothing_behind_it_is_shown(length, tmp_path):
    tokenizer = tokenizer_in(tmp_path)
    logits_of = script(len(PROMPT), spelled("the cat and the dog"), tokenizer.vocab_size)
    core = make_core(
        SlotRunner(logits_of=logits_of),
        tokenizer=tokenizer,
        vocab_size=tokenizer.vocab_size,
        drafter=ForetellingDrafter(length=length, num_right=length, foretell=from_logits(logits_of)),
    )
    heard = ask(core, PROMPT, greedy(19, stop=["t an"]))
    assert (heard.text, heard.finish_reason) == ("the ca", "stop")
    assert heard.token_ids == spelled("the cat an")
    assert core.snapshot().num_referenced == 0


# Sampling


def test_a_seeded_reply_is_the_very_same():
    params = SamplingParams(temperature=1.1, top_p=0.9, seed=11, max_tokens=30)
    without = ask(make_core(), PROMPT, params)
    for num_right in (0, 1, 2, 4):
        runner = SlotRunner()
        reply = ask(make_core(runner, drafter=ForetellingDrafter(length=4, num_right=num_right)), PROMPT, params)
        assert reply.token_ids == without.token_ids
        assert len(runner.steps) <= 1 + -(-29 // (1 + num_right)) + 1


def test_each_place_is_drawn_with_its_own_number_and_so_from_its_own_distribution():
    """The share of replies that begin with a token is its probability, whatever was guessed."""
    probabilities = torch.tensor([0.5, 0.3, 0.2])

    def logits_of(history):
        logits = torch.full((VOCAB_SIZE,), float("-inf"))
        logits[:3] = probabilities.log()
        return logits

    counts = [[0, 0, 0] for _ in range(3)]
    for seed in range(400):
        drafter = ForetellingDrafter(length=2, seed=seed, foretell=from_logits(logits_of))
        core = make_core(SlotRunner(logits_of=logits_of), drafter=drafter)
        reply = ask(core, PROMPT, SamplingParams(temperature=1.0, seed=seed, max_tokens=3))
        for place, token_id in enumerate(reply.token_ids):
            counts[place][token_id] += 1
            number = uniform(seed, len(PROMPT) + place)
            assert token_id == (0 if number < 0.5 else 1 if number < 0.8 else 2)
    for place in range(3):
        assert [count / 400 for count in counts[place]] == pytest.approx(probabilities.tolist(), abs=0.08)


@pytest.mark.parametrize(
    "penalties",
    [
        {"repetition_penalty": 1.6},
        {"presence_penalty": 2.0, "frequency_penalty": 1.0},
        {"repetition_penalty": 1.3, "temperature": 0.9, "seed": 4, "top_k": 12, "min_p": 0.05},
    ],
)
def test_penalties_count_the_tokens_accepted_before(penalties):
    params = SamplingParams(max_tokens=24, **penalties)
    without = ask(make_core(), PROMPT, params)
    for num_right in (1, 5):
        drafter = ForetellingDrafter(length=5, num_right=num_right)
        assert ask(make_core(drafter=drafter), PROMPT, params).token_ids == without.token_ids


def test_log_probabilities_come_with_every_accepted_token():
    params = greedy(10, logprobs=3)
    without = ask(make_core(), PROMPT, params)
    reply = ask(make_core(drafter=ForetellingDrafter(length=4, num_right=3)), PROMPT, params)
    assert reply.logprobs == without.logprobs
    assert len(reply.logprobs) == 10


def test_replies_side_by_side_are_guessed_each_for_itself():
    params = SamplingParams(temperature=1.2, seed=42, max_tokens=20, n=3)
    runner, drafter = SlotRunner(), ForetellingDrafter(length=2, num_right=2)
    core = make_core(runner, drafter=drafter)
    replies = ask_all(core, range(20), params)
    without = ask_all(make_core(), range(20), params)
    assert [reply.token_ids for reply in replies] == [reply.token_ids for reply in without]
    # Each writer but the last copied the tail that they shared, though it wrote three tokens at once.
    assert core.snapshot().copies == 2
    assert runner.steps[1] == [1] * 9


# Blocks


def test_a_block_taken_for_wrong_guesses_is_given_back_in_the_same_step():
    core = make_core(drafter=ForetellingDrafter(length=4, num_right=0))
    listener = Listener(core)
    request_id = core.submit(range(13), greedy(10))
    held = []
    for _ in range(5):
        listener.step()
        held.append((sequence_of(core, request_id).num_computed_tokens, core.snapshot().num_referenced))
    # From 13 computed tokens on the guesses reach into a second block; it is kept only once a token stands in it.
    assert held == [(13, 1), (14, 1), (15, 1), (16, 1), (17, 2)]


def test_wrong_guesses_are_never_found_by_others():
    reply, drafter = reply_to(range(13), 6), ForetellingDrafter(length=6, num_right=0)
    core = make_core(drafter=drafter)
    ask(core, range(13), greedy(6))
    # 13 of the prompt and 5 of the reply were computed; the sixth was drawn last.
    assert core.probe([*range(13), *reply, 0]).num_cached_tokens == 18
    assert core.probe([*range(13), reply[0], *drafter.drafts[0], 0]).num_cached_tokens == 14


def test_what_was_accepted_is_published_and_found_as_if_it_had_come_one_by_one():
    drafted, plain = make_core(drafter=ForetellingDrafter(length=6, num_right=6)), make_core()
    for core in (drafted, plain):
        ask(core, range(13), greedy(40))
    chat = [*range(13), *reply_to(range(13), 40), 5]
    assert drafted.probe(chat) == plain.probe(chat)
    assert drafted.probe(chat).num_cached_tokens == 52
    assert drafted.snapshot().token_counts.count(16) == plain.snapshot().token_counts.count(16) == 3


def test_drafts_take_no_block_from_a_sequence_that_needs_it():
    """Two replies in a pool that has just enough for both: guesses are cut to the block that is there."""
    drafter = ForetellingDrafter(length=6, num_right=0)
    core = make_core(num_blocks=5, drafter=drafter, prefix_caching=False)
    listener = Listener(core)
    asked = [core.submit([first, *range(13)], greedy(18)) for first in (40, 41)]
    listener.run()
    assert core.snapshot().preemptions == 0
    for first, request_id in zip((40, 41), asked, strict=True):
        assert tuple(listener.reply(request_id).token_ids) == reply_to([first, *range(13)], 18)


def test_a_sequence_preempted_between_drafts_goes_on_as_without():
    params = SamplingParams(temperature=1.0, seed=7, repetition_penalty=1.2, max_tokens=24)
    without = ask(make_core(), range(15), params)
    drafter = ForetellingDrafter(length=3, num_right=2)
    core = make_core(drafter=drafter)
    listener = Listener(core)
    request_id = core.submit(range(15), params)
    while core.has_unfinished:
        listener.step()
        if core.has_unfinished and len(listener.reply(request_id).token_ids) in (7, 13):
            preempt(core, request_id)
            core.check_integrity()
    heard = listener.reply(request_id)
    assert heard.stats.num_preemptions == 2
    assert heard.token_ids == without.token_ids
    assert heard.stats.num_accepted_tokens > 0


def test_a_step_that_fails_with_drafts_in_it_leaves_nothing_behind():
    runner, drafter = SlotRunner(), ForetellingDrafter(length=6, num_right=6)
    core = make_core(runner, drafter=drafter)
    listener = Listener(core)
    request_id = core.submit(range(13), greedy(20))
    listener.step()
    runner.failures.append(RuntimeError("a bad step"))
    listener.run()
    assert tuple(listener.reply(request_id).token_ids) == reply_to(range(13), 20)
    assert core.snapshot().num_referenced == 0
    assert tuple(ask(core, range(13), greedy(20)).token_ids) == reply_to(range(13), 20)
