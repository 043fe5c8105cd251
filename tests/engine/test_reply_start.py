"""Replies that begin with given ids: a branch from the middle of one that was drawn before. Blocks hold 16 tokens."""

import pytest

from paged_chat.engine.errors import PromptTooLong
from paged_chat.engine.request import SamplingParams
from slot_runner import Listener, SlotRunner, greedy, make_core, preempt, reply_to, script
from tiny_tokenizer import END, spelled, tokenizer_in

PROMPT = [(5 * i) % 50 for i in range(40)]
DRAWN = SamplingParams(temperature=1.0, frequency_penalty=0.5, repetition_penalty=1.2, max_tokens=20, seed=3)


def run(core, params, reply_start=(), prompt=PROMPT):
    """What was heard of each sample of a request that runs alone."""
    listener = Listener(core)
    request_id = core.submit(prompt, params, reply_start=reply_start)
    listener.run()
    return [listener.reply(request_id, sample) for sample in range(params.n)]


@pytest.fixture
def runner():
    return SlotRunner()


@pytest.fixture
def core(runner):
    return make_core(runner)


def test_a_branch_computes_the_new_token_and_reuses_every_one_before_it(core, runner):
    whole = reply_to(PROMPT, 20)
    run(core, greedy(20))
    start = [*whole[:7], (whole[7] + 1) % 50]
    runner.steps.clear()
    [branch] = run(core, greedy(20), start)
    assert branch.token_ids == [*start, *reply_to([*PROMPT, *start], 12)]
    assert (branch.stats.num_prompt_tokens, branch.stats.num_cached_tokens) == (48, 47)
    assert branch.stats.num_generated_tokens == 12
    assert branch.finish_reason == "length"
    assert runner.num_tokens == 1 + 11  # the last token's KV is nobody's


@pytest.mark.parametrize("num_given", [1, 9, 19])
def test_a_reply_that_is_given_its_own_beginning_is_the_same_reply(core, num_given):
    """Penalties, limits and random numbers count from the prompt's end."""
    [whole] = run(core, DRAWN)
    [again] = run(core, DRAWN, whole.token_ids[:num_given])
    assert again.token_ids == whole.token_ids
    assert again.stats.num_cached_tokens == 40 + num_given - 1


def test_it_survives_preemption_and_is_told_once(core):
    [whole] = run(core, DRAWN)
    listener = Listener(core)
    request_id = core.submit(PROMPT, DRAWN, reply_start=whole.token_ids[:5])
    for _ in range(4):
        listener.step()
    preempt(core, request_id)
    listener.run()
    assert listener.reply(request_id).token_ids == whole.token_ids
    assert listener.reply(request_id).stats.num_generated_tokens == 15


def test_replies_side_by_side_begin_with_the_same_ids_and_part_behind_them(core):
    first, second = run(core, SamplingParams(temperature=1.5, n=2, seed=5, max_tokens=12), [7, 8, 9])
    assert first.token_ids[:3] == second.token_ids[:3] == [7, 8, 9]
    assert first.token_ids != second.token_ids
    assert len(first.token_ids) == len(second.token_ids) == 12


def test_logprobs_are_those_of_what_was_drawn(core):
    [branch] = run(core, greedy(6, logprobs=2), [7, 8])
    assert [one.token_id for one in branch.logprobs] == branch.token_ids[2:]
    assert [len(one.top) for one in branch.logprobs] == [2] * 4


def test_a_beginning_that_ends_the_reply_computes_nothing(runner):
    core = make_core(runner, end_token_ids=[9])
    replies = run(core, SamplingParams(n=2), [7, 9])
    assert [(reply.token_ids, reply.finish_reason) for reply in replies] == [([7, 9], "stop")] * 2
    [full] = run(core, greedy(2), [7, 8])
    assert (full.token_ids, full.finish_reason, full.stats.num_generated_tokens) == ([7, 8], "length", 0)
    assert runner.steps == []
    assert not core.has_unfinished


def test_a_beginning_counts_for_the_window(core):
    with pytest.raises(PromptTooLong, match="window"):
        core.submit(PROMPT, greedy(1), reply_start=[1] * 2008)


# Text

QUESTION = [1, *spelled("Say it")]


@pytest.fixture
def say(tmp_path):
    """`say("drawn", reply_start=..., stop=...)`: what is heard of a reply that is drawn so."""
    tokenizer = tokenizer_in(tmp_path)

    def say(drawn, reply_start, **params):
        num_given = len(QUESTION) + len(reply_start)
        runner = SlotRunner(logits_of=script(num_given, [*drawn, END], tokenizer.vocab_size))
        core = make_core(runner, tokenizer=tokenizer, vocab_size=tokenizer.vocab_size, end_token_ids=[END])
        [reply] = run(core, greedy(32, **params), reply_start, QUESTION)
        return reply

    return say


def test_half_a_character_is_completed_by_what_is_drawn(say):
    face = spelled("😀")
    reply = say([*face[2:], *spelled("!")], [*spelled("a "), *face[:2]])
    assert reply.text == "a 😀!"
    assert reply.token_ids == [*spelled("a 😀!"), END]


def test_a_stop_text_may_begin_in_what_was_given(say):
    reply = say(spelled("D and more"), spelled("so EN"), stop=["END"])
    assert (reply.text, reply.finish_reason) == ("so ", "stop")
    assert reply.token_ids == spelled("so END")


def test_what_only_looked_like_a_stop_text_is_shown(say):
    reply = say(spelled("VY"), spelled("so EN"), stop=["END"])
    assert (reply.text, reply.finish_reason) == ("so ENVY", "stop")


def test_a_stop_text_in_what_was_given_ends_it_there(say):
    reply = say(spelled("x"), spelled("so END"), stop=["END"])
    assert (reply.text, reply.finish_reason) == ("so ", "stop")
    assert reply.token_ids == spelled("so END")
