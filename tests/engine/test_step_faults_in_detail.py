"""What a fault takes with it and what it leaves: tails, siblings, guesses, the words. Blocks hold 16 tokens."""

import logging

import pytest
import torch

from foretelling import ForetellingDrafter
from paged_chat.engine import SamplingParams
from paged_chat.engine import core as core_module
from paged_chat.engine.events import EventKind
from paged_chat.engine.sampler import sample as draw
from paged_chat.engine.scheduler import ScheduledStep
from slot_runner import (
    VOCAB_SIZE,
    Listener,
    SlotRunner,
    ask,
    ask_all,
    greedy,
    make_core,
    prompt,
    reply_to,
    sequence_of,
)

BEAMS = SamplingParams(temperature=0.0, beam_width=3, n=3, max_tokens=6)
SEVERAL = SamplingParams(temperature=1.0, n=3, seed=5, max_tokens=6)


@pytest.fixture(autouse=True)
def quiet(caplog):
    caplog.set_level(logging.CRITICAL, "paged_chat.engine.step_faults")


def nan_token(reply: tuple[int, ...], at: int) -> int:
    """A token that comes first at this place."""
    assert reply[at] not in reply[:at]
    return reply[at]


def told_ids(core, params: SamplingParams) -> list[list[int]]:
    return [heard.token_ids for heard in ask_all(core, prompt(20), params)]


# After the model has run


@pytest.fixture
def draw_fails_at(monkeypatch):
    """Makes the drawing of tokens raise at its given call, after the step was computed."""

    def fail_at(call: int) -> None:
        calls = iter(range(1000))

        def sample(*arguments):
            if next(calls) == call:
                raise MemoryError("no room to draw")
            return draw(*arguments)

        monkeypatch.setattr(core_module, "sample", sample)

    return fail_at


@pytest.mark.parametrize("call", [0, 1, 3])
def test_replies_that_have_parted_without_a_token_of_their_own_are_computed_again(draw_fails_at, call):
    undisturbed = told_ids(make_core(), SEVERAL)
    runner = SlotRunner()
    core = make_core(runner)
    draw_fails_at(call)
    assert told_ids(core, SEVERAL) == undisturbed
    # Each of the three alone, then all together again: 20 + call tokens were there, 16 of them in a whole block.
    assert runner.steps[call + 1 : call + 4] == [[4 + call]] * 3
    assert runner.steps[call + 4] == [1, 1, 1]


def test_who_waits_or_has_ended_is_not_touched_by_a_fault(draw_fails_at):
    core = make_core(max_num_seqs=4)
    listener = Listener(core)
    first = core.submit(prompt(20), SamplingParams(temperature=1.0, n=3, seed=5, max_tokens=9))
    other = core.submit(prompt(20, first=1), greedy(9))
    late = core.submit(prompt(20, first=2), greedy(9, n=2))  # for which there is no place yet
    listener.step()
    core.abort(first, 1)
    listener.step()
    draw_fails_at(0)
    listener.run()
    ended = listener.reply(first, 1)
    assert (ended.finish_reason, len(ended.token_ids), ended.stats.num_preemptions) == ("abort", 1, 0)
    assert [listener.reply(first, sample).stats.num_preemptions for sample in (0, 2)] == [1, 1]
    assert [listener.reply(each).stats.num_preemptions for each in (other, late)] == [1, 0]


def test_a_reply_whose_step_came_later_is_not_touched_by_a_siblings_fault():
    runner = SlotRunner()
    core = make_core(runner, max_num_batched_tokens=2)
    listener = Listener(core)
    request_id = core.submit([7], greedy(6, n=3))
    listener.step()
    runner.failures.append(RuntimeError("a bad step"))  # of the first two
    listener.run()
    told = [listener.reply(request_id, sample) for sample in range(3)]
    assert [heard.stats.num_preemptions for heard in told] == [1, 1, 0]
    assert {tuple(heard.token_ids) for heard in told} == {reply_to([7], 6)}


def test_who_has_ended_in_the_very_step_of_the_fault_has_ended(draw_fails_at):
    """Its last token is drawn with everybody's, and then the guesses of the other one are verified."""
    core = make_core(drafter=ForetellingDrafter(length=2, num_right=2))
    listener = Listener(core)
    short, other = core.submit(prompt(20), greedy(2)), core.submit(prompt(20, first=1), greedy(9))
    listener.step()
    draw_fails_at(1)
    listener.run()
    assert (tuple(listener.reply(short).token_ids), listener.reply(short).finish_reason) == (
        reply_to(prompt(20), 2),
        "length",
    )
    assert tuple(listener.reply(other).token_ids) == reply_to(prompt(20, first=1), 9)
    assert listener.reply(other).stats.num_preemptions == 1


def test_the_event_of_a_failure_names_whose_it_is():
    runner = SlotRunner()
    runner.nan_at = 49
    core = make_core(runner)
    requests = [core.submit(tokens, greedy(2)) for tokens in ([1, 2], [3, 49], [5, 6])]
    core.step()
    failed = [event.request_id for event in core.events.since(0) if event.kind is EventKind.FAILED]
    assert failed == [requests[1]]


def test_a_search_that_was_computed_when_the_fault_came_ends_and_others_go_on(draw_fails_at):
    """It is amid its own bookkeeping then; a fault before it would have been a matter of computing it again."""
    core = make_core()
    listener = Listener(core)
    search, other = core.submit(prompt(20), BEAMS), core.submit(prompt(20, first=1), greedy(6))
    listener.step()
    draw_fails_at(0)
    listener.run()
    assert {listener.reply(search, sample).finish_reason for sample in range(3)} == {"error"}
    assert tuple(listener.reply(other).token_ids) == reply_to(prompt(20, first=1), 6)
    assert core.snapshot().num_referenced == 0


def test_beams_that_wait_for_a_sibling_keep_their_blocks_when_its_step_fails():
    runner = SlotRunner()
    core = make_core(runner, max_num_batched_tokens=2)
    undisturbed = told_ids(make_core(), BEAMS)
    listener = Listener(core)
    search = core.submit(prompt(20), BEAMS)
    while not any(sequence.is_idle for sequence in core.scheduler.running):
        listener.step()
    idle = [sequence for sequence in core.scheduler.running if sequence.is_idle]
    runner.failures.append(RuntimeError("a bad step"))
    listener.step()
    assert all(sequence in core.scheduler.running for sequence in idle)
    assert not any(sequence.is_suspect for sequence in idle)
    listener.run()
    assert [listener.reply(search, sample).token_ids for sample in range(3)] == undisturbed


def test_a_search_in_which_every_beam_comes_to_no_number_ends_once():
    def likely(history):
        """5 or 6, and then 49 whatever stood before it."""
        logits = torch.zeros(VOCAB_SIZE)
        logits[[5, 6, 49]] = torch.tensor([9.0, 8.0, 0.0] if len(history) == 3 else [0.0, 0.0, 9.0])
        return logits

    runner = SlotRunner(logits_of=likely)
    runner.nan_at = 49
    told = ask_all(core := make_core(runner), [1, 2, 3], SamplingParams(temperature=0.0, beam_width=2, n=2))
    assert [(heard.token_ids, heard.finish_reason) for heard in told] == [([5, 49], "error"), ([6, 49], "error")]
    assert runner.steps == [[3], [1, 1], [1, 1], [1]]  # the last one looks for the layer, once
    assert core.snapshot().num_referenced == 0


def test_an_interrupt_ends_all_that_were_in_the_step_and_nobody_else():
    def interrupt():
        raise KeyboardInterrupt

    runner = SlotRunner()
    core = make_core(runner, max_num_seqs=4)
    listener = Listener(core)
    first, other = core.submit(prompt(20), SEVERAL), core.submit(prompt(20, first=1), greedy(6))
    late = core.submit(prompt(20, first=2), greedy(6, n=2))  # for which there is no place yet
    listener.step()
    runner.before_step = interrupt
    since = core.events.next_number
    with pytest.raises(KeyboardInterrupt):
        core.step()
    runner.before_step = lambda: None
    failed = [event.request_id for event in core.events.since(since) if event.kind is EventKind.FAILED]
    assert failed == [first, other]
    listener.run()
    assert [listener.reply(first, sample).finish_reason for sample in range(3)] == ["abort"] * 3
    assert (listener.reply(other).finish_reason, listener.reply(late, 1).finish_reason) == ("abort", "length")
    # What was begun and may be half written is forgotten.
    assert core.probe([*prompt(20, first=1), *listener.reply(other).token_ids]).num_cached_tokens == 16


# What is forgotten


@pytest.mark.parametrize("fault", ["raises_at", "nan_at"])
def test_the_tail_of_what_has_failed_is_forgotten(fault):
    """Its last block may be half written; the whole ones before it are sound."""
    reply = reply_to(prompt(20), 9)
    runner = SlotRunner()
    setattr(runner, fault, nan_token(reply, 3))
    core = make_core(runner)
    heard = ask(core, prompt(20), greedy(9))
    assert (tuple(heard.token_ids), heard.finish_reason) == (reply[:4], "error")
    assert core.probe([*prompt(20), *reply]).num_cached_tokens == 16


@pytest.mark.parametrize("params", [BEAMS, SEVERAL])
def test_the_tails_of_all_that_a_failed_prompt_stands_for_are_forgotten(params):
    runner = SlotRunner()
    runner.raises_at = 2
    core = make_core(runner, max_num_batched_tokens=20)
    told = ask_all(core, [*prompt(36), 2], params)
    assert [heard.finish_reason for heard in told] == ["error"] * 3
    # All 36 were computed before the step with the last one failed, 4 of them into the block that it wrote.
    assert core.probe([*prompt(36), 2]).num_cached_tokens == 32


# Guesses


@pytest.mark.parametrize("num_right", [1, 2, 3])
def test_a_guess_that_leads_to_no_number_counts_as_wrong(num_right):
    """The reply is told up to the token that has no logits behind it, whether that was drawn or guessed."""
    reply = reply_to(prompt(20), 9)
    runner = SlotRunner()
    runner.nan_at = nan_token(reply, 3)
    core = make_core(runner, drafter=ForetellingDrafter(length=3, num_right=num_right))
    listener = Listener(core)
    failing, other = core.submit(prompt(20), greedy(9)), core.submit(prompt(20, first=1), greedy(9))
    listener.run()
    heard = listener.reply(failing)
    assert (tuple(heard.token_ids), heard.finish_reason) == (reply[:4], "error")
    assert tuple(listener.reply(other).token_ids) == reply_to(prompt(20, first=1), 9)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_the_guesses_of_others_count_beside_a_fault(place):
    """And of its own those before it: each of 9 tokens but the first comes with 3 guesses, all right."""
    reply = reply_to(prompt(20), 9)
    runner = SlotRunner()
    runner.nan_at = nan_token(reply, 5 + place)
    core = make_core(runner, drafter=ForetellingDrafter(length=3, num_right=3))
    listener = Listener(core)
    failing, other = core.submit(prompt(20), greedy(9)), core.submit(prompt(20, first=1), greedy(9))
    listener.run()
    assert listener.reply(other).stats.num_accepted_tokens == 6
    # The second step gives 4 tokens; the third the fifth token behind the prompt and what is right up to the fault.
    assert listener.reply(failing).stats.num_accepted_tokens == 3 + place
    assert tuple(listener.reply(failing).token_ids) == reply[: 6 + place]


def test_what_is_dropped_from_a_step_takes_its_guesses_with_it():
    step = ScheduledStep(budget=10)
    sequence = sequence_of(core := make_core(), core.submit(prompt(5), greedy(9)))
    step.add(sequence, 1)
    step.add_draft(sequence, [7, 8])
    assert (step.budget, step.num_drafted) == (7, 2)
    step.drop(sequence)
    assert (step.num_tokens, step.drafts, step.num_drafted) == ({}, {}, 0)


# Words


@pytest.mark.parametrize(
    ("layer", "words"),
    [
        (0, "the model's embedding or output head gave numbers that aren't finite (NaN or infinity) for this request"),
        (1, "layer 1 of 4 gave numbers that aren't finite (NaN or infinity) for this request"),
        (4, "layer 4 of 4 gave numbers that aren't finite (NaN or infinity) for this request"),
    ],
)
def test_the_layer_is_named(layer, words):
    runner = SlotRunner()
    runner.nan_at, runner.faulty_layer = 49, layer
    assert ask(make_core(runner), [1, 2, 49], greedy(2)).error.startswith(words)


def test_where_it_comes_out_well_alone_and_fails_again_no_layer_is_named():
    class SoundAlone(SlotRunner):
        def find_faulty_layer(self, batch):
            self.execute(batch)

    runner = SoundAlone()
    runner.nan_at = 49
    heard = ask(make_core(runner), [1, 2, 49], greedy(2))
    assert heard.finish_reason == "error"
    assert "from no layer that could be found" in heard.error
    assert runner.steps == [[3], [3], [3], [3]]  # in the step, alone, in a step of its own, and alone again


def test_the_log_says_what_was_tried_again(caplog):
    caplog.set_level(logging.ERROR, "paged_chat.engine.step_faults")

    class BadAt(SlotRunner):
        bad_step = 0

        def execute(self, batch):
            logits = super().execute(batch)
            return torch.full_like(logits, torch.nan) if len(self.steps) == self.bad_step else logits

    runner = BadAt()
    core = make_core(runner)
    runner.failures.append(RuntimeError("a bad step"))
    ask(core, prompt(5), greedy(2))
    runner.bad_step = len(runner.steps) + 1
    assert tuple(ask(core, prompt(5, first=1), greedy(2)).token_ids) == reply_to(prompt(5, first=1), 2)
    raised, not_finite = caplog.records
    assert raised.message.endswith("tried alone: the step that computed this request failed: RuntimeError: a bad step")
    assert raised.exc_info is not None
    assert not_finite.message == "numbers that aren't finite came once and not again; r2 is tried alone"
