"""Decides, step by step, which sequences compute how many tokens."""

from collections import deque
from dataclasses import dataclass, field

from .cache.block_manager import BlockManager
from .events import EventKind
from .sequence import Sequence, SequenceStatus
from .speculation.drafter import Drafter

MAX_STEPS_DEFERRED = 256


@dataclass(slots=True)
class ScheduledStep:
    """What one step computes: for each sequence, the next `num_tokens` of its tokens, and the guesses behind them."""

    budget: int  # tokens that it may still take on
    num_tokens: dict[Sequence, int] = field(default_factory=dict)
    drafts: dict[Sequence, list[int]] = field(default_factory=dict)  # each behind the last token of its sequence
    copies: tuple[tuple[int, int], ...] = ()  # (source block, destination block)
    has_preempted: bool = False
    is_computed: bool = False  # the model has run; what came of it is being taken

    @property
    def num_drafted(self) -> int:
        """Guessed tokens in all."""
        return sum(len(draft) for draft in self.drafts.values())

    def add(self, sequence: Sequence, num_tokens: int) -> None:
        self.num_tokens[sequence] = num_tokens
        self.budget -= num_tokens

    def add_draft(self, sequence: Sequence, draft: list[int]) -> None:
        self.drafts[sequence] = draft
        self.budget -= len(draft)
        sequence.num_drafted_tokens += len(draft)

    def drop(self, sequence: Sequence) -> None:
        self.budget += self.num_tokens.pop(sequence, 0)
        self.drafts.pop(sequence, None)


class Scheduler:
    """Iteration-level scheduling with chunked prefill (Orca, Yu et al. 2022; Sarathi, Agrawal et al. 2023).

    One step mixes both kinds of work under a token budget, in this order:

    1. sequences that decode, least recently served first, each one token (an eighth of the budget stays for prompts);
    2. sequences in the middle of their prompt, oldest first, as much as the budget leaves;
    3. waiting ones in the order they came, as long as blocks, places and budget last. One whose next block another
       sequence is computing right now steps aside for a bounded number of steps, so that it is computed once;
    4. in a step that only decodes, tokens guessed ahead, if a drafter is given: they take budget and blocks that nobody
       else wants.

    When a running sequence can't get the block it needs, the newest running one gives up its own and waits, in its
    old place in line, to be recomputed. Idle ones also make room for who waits when nothing else goes on: they wait for
    a sibling, perhaps for that very one.

    A suspect, which was in a step that failed, goes before all of this and has its steps to itself.

    Always: waiting is in order of arrival; the running ones' places never exceed max_num_seqs.
    """

    def __init__(
        self,
        manager: BlockManager,
        *,
        max_num_seqs: int,
        max_num_batched_tokens: int,
        drafter: Drafter | None,
    ) -> None:
        self.manager = manager
        self.drafter = drafter
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []  # in order of arrival
        self._max_num_seqs = max_num_seqs
        self._max_num_batched_tokens = max_num_batched_tokens
        self.num_preemptions = 0
        self._num_served = 0

    def add(self, sequence: Sequence) -> None:
        self.waiting.append(sequence)

    def schedule(self) -> ScheduledStep:
        step = ScheduledStep(budget=self._max_num_batched_tokens)
        self._schedule_suspect(step)
        if not step.num_tokens:
            self._schedule_all(step)
        step.copies = self.manager.take_copies()
        for sequence in step.num_tokens:
            # A number for each, not one a step: else the older of two served together would always be first again.
            self._num_served += 1
            sequence.last_served = self._num_served
        return step

    def _schedule_suspect(self, step: ScheduledStep) -> None:
        """The first suspect that runs or can be admitted, alone."""
        for sequence in [sequence for sequence in self.running if sequence.is_suspect]:
            self._schedule_running(sequence, step)
            if step.num_tokens:
                return
        for sequence in [sequence for sequence in self.waiting if sequence.is_suspect]:
            if self._admit(sequence, step):
                step.add(sequence, min(sequence.num_remaining_tokens, step.budget))
                return

    def _schedule_all(self, step: ScheduledStep) -> None:
        decodes = [sequence for sequence in self.running if sequence.num_remaining_tokens == 1]
        prefills = [sequence for sequence in self.running if sequence.num_remaining_tokens > 1]
        # Prompts keep a part of a budget that decodes alone would use up, or they would wait for replies to end.
        kept_back = max(1, step.budget // 8) if step.budget > 1 and (prefills or self.waiting) else 0
        step.budget -= kept_back
        for sequence in sorted(decodes, key=lambda sequence: (sequence.last_served, sequence.order)):
            self._schedule_running(sequence, step)
        step.budget += kept_back
        for sequence in prefills:
            self._schedule_running(sequence, step)
        self._admit_waiting(step)
        self._add_drafts(step)

    def fork(self, parent: Sequence, sample: int) -> Sequence:
        """A reply or beam that parts from another where that one stands, running or waiting as it does."""
        child = parent.fork(sample, parent.status)
        if parent.status is SequenceStatus.RUNNING:
            self.manager.fork(parent, child)
            self.running.append(child)
            self.running.sort(key=lambda sequence: sequence.order)
        else:
            self._put_in_line(child)
        return child

    def retry_alone(self, sequence: Sequence) -> None:
        """Takes back the blocks of a running sequence that a failed step may have half written."""
        self.manager.forget_tail(sequence)
        self._give_up(sequence)
        sequence.is_suspect = True

    def finish(self, sequence: Sequence) -> None:
        """Takes a sequence out, wherever it stands; its computed blocks stay cached."""
        if sequence.status is SequenceStatus.RUNNING:
            self.running.remove(sequence)
            self.manager.free(sequence)
        elif sequence.status is SequenceStatus.WAITING:
            self.waiting.remove(sequence)
        sequence.status = SequenceStatus.FINISHED

    def _schedule_running(self, sequence: Sequence, step: ScheduledStep) -> None:
        num_tokens = min(sequence.num_remaining_tokens, step.budget)
        if num_tokens <= 0:
            return
        while sequence.status is SequenceStatus.RUNNING:
            if self.manager.grow(sequence, num_tokens):
                step.add(sequence, num_tokens)
                return
            self._preempt(self.running[-1], step)

    def _preempt(self, sequence: Sequence, step: ScheduledStep) -> None:
        step.drop(sequence)
        step.has_preempted = True
        self._give_up(sequence)

    def _give_up(self, sequence: Sequence) -> None:
        self.running.remove(sequence)
        self.manager.free(sequence)
        self.manager.events.record(EventKind.PREEMPTED)
        sequence.status = SequenceStatus.WAITING
        sequence.num_preemptions += 1
        self.num_preemptions += 1
        self._put_in_line(sequence)

    def _put_in_line(self, sequence: Sequence) -> None:
        position = next((i for i, other in enumerate(self.waiting) if other.order > sequence.order), len(self.waiting))
        self.waiting.insert(position, sequence)

    def _admit_waiting(self, step: ScheduledStep) -> None:
        if step.has_preempted or any(sequence.is_suspect for sequence in self.waiting):
            return  # what was given up, or is waited for, would be taken right away
        for sequence in [sequence for sequence in self.waiting if not sequence.is_idle]:
            if step.budget <= 0:
                return
            if sequence.num_steps_deferred < MAX_STEPS_DEFERRED and self.manager.computed_by_other(sequence):
                sequence.num_steps_deferred += 1
                continue
            if not self._admit(sequence, step):
                return
            step.add(sequence, min(sequence.num_remaining_tokens, step.budget))

    def _admit(self, sequence: Sequence, step: ScheduledStep) -> bool:
        while not self._has_place(sequence) or not self.manager.admit(sequence, alone=not self.running):
            if not self.running or not all(running.is_idle for running in self.running):
                return False
            self._preempt(self.running[-1], step)
        self.waiting.remove(sequence)
        sequence.status = SequenceStatus.RUNNING
        self.running.append(sequence)
        self.running.sort(key=lambda sequence: sequence.order)
        return True

    def _has_place(self, sequence: Sequence) -> bool:
        return sequence.num_places + sum(running.num_places for running in self.running) <= self._max_num_seqs

    def _add_drafts(self, step: ScheduledStep) -> None:
        """Guesses take part in a step that is short of nothing, and are cut to the blocks that are free."""
        if self.drafter is None or step.has_preempted:
            return
        if any(sequence.num_remaining_tokens > 1 for sequence in step.num_tokens):
            return  # a prompt is being computed
        rooms = {sequence: _room(sequence) for sequence in step.num_tokens}
        for sequence, draft in self.drafter.draft(rooms, step.budget).items():
            while not self.manager.grow(sequence, 1 + len(draft)):  # the slot of its own token is there already
                draft.pop()
            if draft:
                step.add_draft(sequence, draft)


def _room(sequence: Sequence) -> int:
    """How many guessed tokens it has use for: a step gives one token more than it drafts.

    A first token shouldn't wait for guesses to be verified; a beam's next token isn't drawn from its logits alone.
    """
    if not sequence.num_generated_tokens or sequence.params.is_beam_search:
        return 0
    end = sequence.max_len
    if sequence.params.max_tokens is not None:
        end = min(end, sequence.num_prompt_tokens + sequence.params.max_tokens)
    return end - len(sequence.token_ids) - 1
