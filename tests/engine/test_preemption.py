"""Who gives up blocks when they don't suffice, and how it comes back. Blocks hold 16 tokens."""

import itertools

import pytest

from foretelling import ForetellingDrafter
from paged_chat.engine.cache.block_manager import BlockManager
from paged_chat.engine.request import SamplingParams
from paged_chat.engine.scheduler import Scheduler
from paged_chat.engine.sequence import Sequence, SequenceStatus
from paged_chat.engine.speculation.drafter import Drafter
from slot_runner import Listener, SlotRunner, greedy, make_core, preempt, prompt, reply_to


class Running:
    """A scheduler in the middle of its work."""

    def __init__(
        self,
        num_blocks: int,
        *,
        max_num_seqs: int = 8,
        max_num_batched_tokens: int = 64,
        drafter: Drafter | None = None,
    ) -> None:
        self.manager = BlockManager(num_blocks, 16)
        self.scheduler = Scheduler(
            self.manager, max_num_seqs=max_num_seqs, max_num_batched_tokens=max_num_batched_tokens, drafter=drafter
        )
        self._arrivals = itertools.count(1)

    def sequence(self, num_tokens: int) -> Sequence:
        arrival = next(self._arrivals)
        return Sequence(
            request_id=f"r{arrival}",
            params=SamplingParams(),
            root=self.manager.hasher.root(("weights", "")),
            token_ids=prompt(num_tokens, first=arrival),
            num_prompt_tokens=num_tokens,
            max_len=1000,
            arrival=arrival,
        )

    def decoding(self, num_computed: int = 16) -> Sequence:
        """Where its blocks are full, its next token needs another one."""
        sequence = self._computed(num_computed)
        sequence.token_ids.append(1)
        return sequence

    def idle(self, num_computed: int = 16) -> Sequence:
        sequence = self._computed(num_computed)
        sequence.is_idle = True
        return sequence

    def waiting(self, num_tokens: int) -> Sequence:
        sequence = self.sequence(num_tokens)
        self.scheduler.add(sequence)
        return sequence

    def _computed(self, num_tokens: int) -> Sequence:
        sequence = self.sequence(num_tokens)
        assert self.manager.admit(sequence, alone=True)
        sequence.num_computed_tokens = num_tokens
        self.manager.publish(sequence)
        sequence.status = SequenceStatus.RUNNING
        self.scheduler.running.append(sequence)
        return sequence


# Whose blocks are taken


def test_the_newest_gives_up_its_blocks():
    core = make_core(num_blocks=5)
    listener = Listener(core)
    requests = [core.submit(prompt(15, first), greedy(30)) for first in range(3)]
    listener.run()
    for first, request_id in enumerate(requests):
        heard = listener.reply(request_id)
        assert tuple(heard.token_ids) == reply_to(prompt(15, first), 30)
        assert heard.finish_reason == "length"
    preemptions = [listener.reply(request_id).stats.num_preemptions for request_id in requests]
    assert preemptions[0] == 0
    assert preemptions[2] >= 1
    assert core.snapshot().preemptions == sum(preemptions)


@pytest.mark.parametrize("preempted", [(0, 1), (1, 0)])
def test_a_preempted_one_waits_in_its_old_place(preempted):
    core = make_core(max_num_seqs=2)
    listener = Listener(core)
    requests = [core.submit(prompt(5, number), greedy(9)) for number in range(4)]
    first, second, third, fourth = requests
    listener.step()
    for number in preempted:
        preempt(core, requests[number])
    assert [sequence.request_id for sequence in core.scheduler.waiting] == [first, second, third, fourth]
    listener.step()
    assert [sequence.request_id for sequence in core.scheduler.running] == [first, second]
    listener.run()


def test_one_that_comes_back_takes_its_old_place_among_the_running():
    core = make_core(max_num_seqs=2)
    listener = Listener(core)
    first, second = (core.submit(prompt(5, number), greedy(9)) for number in range(2))
    listener.step()
    preempt(core, first)
    listener.step()
    assert [sequence.request_id for sequence in core.scheduler.running] == [first, second]
    listener.run()


def test_what_is_taken_from_one_without_a_turn_leaves_the_budget_as_it_was():
    running = Running(num_blocks=5, max_num_batched_tokens=2)
    first, second, third, fourth = (running.decoding() for _ in range(4))
    step = running.scheduler.schedule()
    assert (step.num_tokens, step.budget) == ({first: 1, second: 1}, 0)
    assert (running.scheduler.running, list(running.scheduler.waiting)) == ([first, second], [third, fourth])


def test_what_is_taken_from_one_that_had_its_turn_takes_it_out_of_the_step():
    running = Running(num_blocks=3, max_num_batched_tokens=8)
    first, second = running.decoding(), running.decoding(10)
    first.last_served = 1  # so the second comes first
    step = running.scheduler.schedule()
    assert (step.num_tokens, step.budget, step.has_preempted) == ({first: 1}, 7, True)
    assert list(running.scheduler.waiting) == [second]


def test_what_was_given_up_isnt_handed_to_newcomers_or_guesses_in_the_same_step():
    drafter = ForetellingDrafter(length=2)
    running = Running(num_blocks=5, drafter=drafter)
    decoding, idle = running.decoding(), running.idle(48)
    late = running.waiting(5)
    assert running.scheduler.schedule().num_tokens == {decoding: 1}
    assert drafter.rooms == []
    assert list(running.scheduler.waiting) == [idle, late]
    decoding.num_computed_tokens += 1
    decoding.token_ids.append(1)
    assert running.scheduler.schedule().num_tokens == {decoding: 1, late: 5}


def test_where_no_block_is_left_for_guesses_the_step_has_none():
    drafter = ForetellingDrafter(length=2, num_right=2, foretell=lambda sequence, length: [7] * length)
    running = Running(num_blocks=2, drafter=drafter)
    decoding = running.decoding(15)
    step = running.scheduler.schedule()
    assert (step.num_tokens, step.drafts, drafter.drafts) == ({decoding: 1}, {}, [[7, 7]])


def test_of_guesses_that_find_no_block_the_last_are_dropped():
    drafter = ForetellingDrafter(length=4, num_right=4, foretell=lambda sequence, length: [3, 4, 5, 6])
    running = Running(num_blocks=2, drafter=drafter)
    decoding = running.decoding(13)  # the next token goes to place 13 of 16
    assert running.scheduler.schedule().drafts == {decoding: [3, 4]}


def test_guesses_go_on_while_another_waits_for_a_place():
    drafter = ForetellingDrafter(length=2, num_right=2, foretell=lambda sequence, length: [3, 4])
    running = Running(num_blocks=4, max_num_seqs=1, drafter=drafter)
    decoding, _ = running.decoding(), running.waiting(5)
    assert running.scheduler.schedule().drafts == {decoding: [3, 4]}


def test_one_that_is_finished_leaves_its_last_block_findable_unless_that_is_forgotten():
    running = Running(num_blocks=5)
    kept, dropped = running.decoding(10), running.decoding(10)
    running.scheduler.finish(kept)
    running.scheduler.manager.forget_tail(dropped)
    running.scheduler.finish(dropped)
    assert [running.manager.probe(each.token_ids, each.root).num_cached_tokens for each in (kept, dropped)] == [10, 0]
    assert running.scheduler.running == []


def test_what_parts_from_one_that_waits_waits_behind_it_until_it_is_finished():
    running = Running(num_blocks=5)
    parent, late = running.waiting(5), running.waiting(5)
    child = running.scheduler.fork(parent, 1)
    assert list(running.scheduler.waiting) == [parent, child, late]
    running.scheduler.finish(child)
    assert list(running.scheduler.waiting) == [parent, late]
    assert (parent.status, child.status) == (SequenceStatus.WAITING, SequenceStatus.FINISHED)


def test_the_oldest_always_gets_on_however_small_the_pool():
    core = make_core(num_blocks=4, max_num_batched_tokens=8)
    listener = Listener(core)
    requests = [core.submit(prompt(10 + first, first), greedy(30)) for first in range(6)]
    listener.run(max_steps=1000)
    for first, request_id in enumerate(requests):
        assert tuple(listener.reply(request_id).token_ids) == reply_to(prompt(10 + first, first), 30)


@pytest.mark.parametrize("budget", [2, 3])
def test_one_that_was_just_given_its_turn_may_still_be_preempted(budget):
    """Where decodes take turns, the newest may stand before an older one that then finds no block."""
    for num_blocks in range(4, 10):
        core = make_core(num_blocks=num_blocks, max_num_batched_tokens=budget)
        listener = Listener(core)
        requests = [core.submit(prompt(12 + first, first), greedy(30, n=2)) for first in range(4)]
        listener.run(max_steps=2000)
        for first, request_id in enumerate(requests):
            for sample in range(2):
                assert tuple(listener.reply(request_id, sample).token_ids) == reply_to(prompt(12 + first, first), 30)


def test_the_watermark_lets_running_ones_grow_without_preemption():
    def preemptions(watermark_blocks: int) -> int:
        core = make_core(num_blocks=9, watermark_blocks=watermark_blocks)
        listener = Listener(core)
        for first in range(4):
            core.submit(prompt(30, first), greedy(18))
        listener.run()
        return core.snapshot().preemptions

    assert preemptions(watermark_blocks=0) > 0
    assert preemptions(watermark_blocks=4) == 0


def test_one_that_is_alone_may_take_the_watermark_too():
    runner = SlotRunner()
    listener = Listener(make_core(runner, num_blocks=4, watermark_blocks=2))
    listener.core.submit(prompt(40), greedy(2))
    listener.run(max_steps=3)
    assert runner.steps == [[40], [1]]


# Idle ones: beams whose siblings are still to come


@pytest.mark.parametrize(("num_tokens", "num_given_up"), [(16, 1), (17, 2), (48, 3)])
def test_where_nothing_else_goes_on_idle_ones_make_room_the_newest_first(num_tokens, num_given_up):
    running = Running(num_blocks=4)
    idle = [running.idle() for _ in range(3)]
    late = running.waiting(num_tokens)
    assert running.scheduler.schedule().num_tokens == {late: num_tokens}
    assert running.scheduler.running == [*idle[: 3 - num_given_up], late]
    assert list(running.scheduler.waiting) == idle[3 - num_given_up :]
    assert running.scheduler.num_preemptions == num_given_up


def test_idle_ones_make_room_for_a_place_too():
    running = Running(num_blocks=9, max_num_seqs=2)
    first, second = running.idle(), running.idle()
    late = running.waiting(5)
    assert running.scheduler.schedule().num_tokens == {late: 5}
    assert (running.scheduler.running, list(running.scheduler.waiting)) == ([first, late], [second])


def test_while_somebody_computes_idle_ones_keep_what_they_have():
    running = Running(num_blocks=4)
    decoding, idle = running.decoding(), running.idle()
    late = running.waiting(5)
    assert running.scheduler.schedule().num_tokens == {decoding: 1}  # it gets the last free block
    assert (running.scheduler.running, list(running.scheduler.waiting)) == ([decoding, idle], [late])


def test_one_that_doesnt_fit_waits_where_nobody_is_left_to_make_room():
    running = Running(num_blocks=3)
    idle, large = running.idle(), running.waiting(33)
    assert running.scheduler.schedule().num_tokens == {}
    assert list(running.scheduler.waiting) == [idle, large]


def test_an_idle_one_waits_until_it_has_something_to_compute():
    running = Running(num_blocks=4)
    idle, late = running.idle(), running.waiting(48)
    assert running.scheduler.schedule().num_tokens == {late: 48}
    running.scheduler.finish(late)
    assert running.scheduler.schedule().num_tokens == {}
    assert list(running.scheduler.waiting) == [idle]
    idle.is_idle = False
    assert running.scheduler.schedule().num_tokens == {idle: 16}  # its block was taken


# Suspects: sequences that were in a step which failed


def test_suspects_that_run_are_computed_one_at_a_time_before_all_others():
    running = Running(num_blocks=9)
    decoding, first, second = (running.decoding() for _ in range(3))
    late = running.waiting(5)
    first.is_suspect = second.is_suspect = True
    assert running.scheduler.schedule().num_tokens == {first: 1}
    first.is_suspect = False
    assert running.scheduler.schedule().num_tokens == {second: 1}
    second.is_suspect = False
    assert running.scheduler.schedule().num_tokens == {decoding: 1, first: 1, second: 1, late: 5}


def test_suspects_that_wait_come_back_one_at_a_time():
    running = Running(num_blocks=9, max_num_batched_tokens=8)
    newcomer, first, second = running.waiting(3), running.waiting(5), running.waiting(9)
    first.is_suspect = second.is_suspect = True
    assert running.scheduler.schedule().num_tokens == {first: 5}
    first.is_suspect, first.num_computed_tokens = False, 5
    assert running.scheduler.schedule().num_tokens == {second: 8}  # as much of it as the budget holds
    assert list(running.scheduler.waiting) == [newcomer]


def test_while_a_suspect_finds_no_room_others_go_on_and_nobody_comes_before_it():
    running = Running(num_blocks=5)
    decoding, newcomer, suspect = running.decoding(), running.waiting(5), running.waiting(64)
    suspect.is_suspect = True
    assert running.scheduler.schedule().num_tokens == {decoding: 1}
    assert list(running.scheduler.waiting) == [newcomer, suspect]
    running.scheduler.finish(decoding)
    assert running.scheduler.schedule().num_tokens == {suspect: 64}


def test_where_all_suspects_that_run_must_give_way_others_go_on():
    """The newest of all is the suspect itself: it gives up its block and waits."""
    running = Running(num_blocks=3)
    decoding, suspect = running.decoding(), running.decoding()
    suspect.is_suspect = True
    assert running.scheduler.schedule().num_tokens == {decoding: 1}
    assert list(running.scheduler.waiting) == [suspect]


def test_where_a_suspect_that_runs_gives_way_one_that_waits_may_take_its_block():
    running = Running(num_blocks=3)
    decoding, suspect, small = running.decoding(), running.decoding(), running.waiting(5)
    suspect.is_suspect = small.is_suspect = True
    assert running.scheduler.schedule().num_tokens == {small: 5}
    assert (running.scheduler.running, list(running.scheduler.waiting)) == ([decoding, small], [suspect])
