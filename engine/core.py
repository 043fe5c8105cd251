"""The engine's loop body: requests in, one step at a time, token deltas out. Tokens only; loading is `Engine`'s."""

import os
import time
from collections.abc import Mapping
from collections.abc import Sequence as ListOf
from typing import Protocol

from torch import Tensor

from .batch import Batch, build_batch
from .beam_group import BeamGroup
from .cache.block import Root
from .cache.block_detail import BlockDetail, block_detail
from .cache.block_manager import BlockManager
from .cache.prefix_probe import PrefixProbe
from .errors import InvalidParameter
from .events import EventLog
from .metrics import PoolSnapshot, TimeEstimate
from .prefill_speed import PrefillSpeed, Work, num_attended
from .request import BeamPreview, SamplingParams, TokenDelta
from .request_check import ModelLimits, check_params, check_prompt
from .request_table import RequestTable
from .sampler import SampledToken, likely_tokens, reads_whole_row, sample
from .scheduler import ScheduledStep, Scheduler
from .sequence import Sequence, SequenceStatus
from .speculation.drafter import Drafter
from .step_counters import StepCounters
from .step_faults import LayerFinder, StepFaults
from .step_logits import StepLogits
from .text.tokenizer import Tokenizer


class Runner(LayerFinder, Protocol):
    """What computes a batch; `ModelRunner`, or a stand-in in tests."""

    def execute(self, batch: Batch) -> Tensor: ...  # [num_logits, vocab] float32


class EngineCore:
    """Owns the blocks and every request; one thread calls it."""

    def __init__(
        self,
        runner: Runner,
        manager: BlockManager,
        limits: ModelLimits,
        *,
        max_num_seqs: int,
        max_num_batched_tokens: int,
        block_bytes: int = 0,
        tokenizer: Tokenizer | None = None,
        drafter: Drafter | None = None,
        check_every_step: bool = False,
    ) -> None:
        self.manager = manager
        self.scheduler = Scheduler(
            manager, max_num_seqs=max_num_seqs, max_num_batched_tokens=max_num_batched_tokens, drafter=drafter
        )
        self.events: EventLog = manager.events
        self._runner = runner
        self._limits = limits
        # The last token of a reply needs no block: nothing is computed after it.
        self._max_len = min(limits.max_model_len, manager.max_tokens + 1)
        self._requests = RequestTable(self.scheduler, limits, tokenizer)
        self._max_num_seqs = max_num_seqs
        self._max_num_batched_tokens = max_num_batched_tokens
        self._block_bytes = block_bytes
        self._has_tokenizer = tokenizer is not None
        self._check_every_step = check_every_step
        self._faults = StepFaults(self.scheduler, self._requests, runner, limits.num_layers)
        self._ended: list[TokenDelta] = []  # ends that the next step reports
        self._num_requests = 0
        self._counters = StepCounters()
        self._speed = PrefillSpeed()

    @property
    def max_len(self) -> int:
        """Longest prompt and reply together: the model's window, or the whole pool if that is smaller."""
        return self._max_len

    @property
    def has_unfinished(self) -> bool:
        return bool(self._requests or self._ended)

    def root(self, salt: str) -> Root:
        return self.manager.hasher.root((*self._limits.key_fields, salt))

    def submit(
        self,
        prompt_token_ids: ListOf[int],
        params: SamplingParams,
        *,
        salt: str = "",
        reply_start: ListOf[int] = (),
    ) -> str:
        """Queues a request and gives its id; nothing is computed before the next step.

        reply_start: ids that each reply begins with, as if they had been drawn: penalties, limits, stop strings and the
            numbers that are drawn count from the prompt's end. Where they end the reply, nothing is computed.

        Raises EmptyPrompt, PromptTooLong, or InvalidParameter (an id outside the vocabulary, more samples than
        places).
        """
        num_prompt_tokens = len(prompt_token_ids)
        token_ids = [*prompt_token_ids, *reply_start]
        check_prompt(token_ids, self._limits, self.manager)
        check_params(params, self._limits, self._max_num_seqs, has_tokenizer=self._has_tokenizer)
        self._num_requests += 1
        request_id = f"r{self._num_requests}"
        sequence = Sequence(
            request_id=request_id,
            params=params,
            root=self.root(salt),
            token_ids=token_ids,
            num_prompt_tokens=num_prompt_tokens,
            num_start_tokens=len(reply_start),
            max_len=self._max_len,
            seed=params.seed if params.seed is not None else int.from_bytes(os.urandom(7), "little"),
            arrival=self._num_requests,
        )
        self._ended += self._requests.add(sequence)
        return request_id

    def step(self) -> list[TokenDelta]:
        """Computes one batch; gives what came of it, in no particular order of requests.

        A step that raises doesn't pass it on: what was in it is computed again, one sequence at a time, and those that
        fail alone end with finish_reason "error". So do those, and no others, whose numbers aren't finite.
        """
        deltas, self._ended = self._ended, []
        step = self.scheduler.schedule()
        if step.num_tokens:
            try:
                self._run(step, deltas)
            except Exception as error:
                self._speed.forget_pending()
                deltas += self._faults.recover(step, error)
            except BaseException:
                self._speed.forget_pending()
                # Ctrl-C: what the step would have copied and written is unknown. The next step reports the ends.
                self._ended = deltas + self._faults.end_all(step, "abort")
                raise
        if self._check_every_step:
            self.check_integrity()
        return deltas

    def abort(self, request_id: str, sample: int | None = None, *, report: bool = True) -> bool:
        """Ends a request now and frees its blocks; the next step reports it. False if it has ended already.

        With `sample` given only that reply ends; False also before it has parted from the prompt that all share, and
        for one of a beam search, whose replies part at its end.
        Without `report` nothing more is heard of the request, not even of an end that came before.
        """
        if not report:
            self._ended = [delta for delta in self._ended if delta.request_id != request_id]
        request = self._requests.get(request_id)
        if request is None:
            return False
        if sample is None:
            ends = self._requests.end_all(request, "abort")
        elif (reply := request.growing_reply(sample)) is not None:
            ends = [self._requests.end(reply, "abort")]
        else:
            return False
        self._ended += ends if report else []
        return True

    def beam_previews(self) -> list[BeamPreview]:
        """Where each beam search that has begun stands."""
        return self._requests.beam_previews()

    def probe(self, prompt_token_ids: ListOf[int], *, salt: str = "", across_salts: bool = False) -> PrefixProbe:
        """What a request with this prompt would reuse now; changes nothing. See `BlockManager.probe`."""
        return self.manager.probe(prompt_token_ids, self.root(salt), across_roots=across_salts)

    def expected_ttft(self, num_prompt_tokens: int, num_cached_tokens: int) -> TimeEstimate | None:
        """How long a prompt of which so much is cached would take to its first token, if nothing else ran.

        None before enough was measured.
        """
        num_new = num_prompt_tokens - num_cached_tokens
        num_steps = -(-num_new // self._max_num_batched_tokens)
        return self._speed.expect(Work(num_steps, num_new, num_attended(num_cached_tokens, num_new)))

    def snapshot(self) -> PoolSnapshot:
        pool, counters = self.manager.pool, self.manager.counters
        return PoolSnapshot(
            num_blocks=pool.num_blocks,
            block_size=self.manager.block_size,
            block_bytes=self._block_bytes,
            num_free=pool.num_empty,
            num_cached=pool.num_cached,
            num_referenced=pool.num_referenced,
            num_shared=pool.num_shared,
            # Lists and plain attributes: three times as fast as what reads better, and the next step waits for it.
            ref_counts=tuple([block.ref_count for block in pool.blocks]),
            token_counts=tuple([0 if block.parent is None else len(block.token_ids) for block in pool.blocks]),
            hits=counters.hits,
            misses=counters.misses,
            recomputed=counters.recomputed,
            evictions=pool.num_evictions,
            copies=counters.copies,
            frees=pool.num_frees,
            preemptions=self.scheduler.num_preemptions,
            num_running=len(self.scheduler.running),
            num_waiting=len(self.scheduler.waiting),
            num_events=self.events.next_number,
            prefill_tokens=self._counters.prefill_tokens,
            prefill_s=self._counters.prefill_s,
            drafted_tokens=self._counters.drafted_tokens,
            accepted_tokens=self._counters.accepted_tokens,
        )

    def block(self, block_id: int, *, salt: str | None = None) -> BlockDetail:
        """What a block holds and who holds it; looks only. With a salt, of other salts' blocks only how many hold it.

        Raises InvalidParameter for an id that the pool hasn't.
        """
        if not 0 < block_id < self.manager.pool.num_blocks:
            raise InvalidParameter(f"block ids go from 1 to {self.manager.pool.num_blocks - 1}, not {block_id}")
        block, block_size = self.manager.pool.blocks[block_id], self.manager.block_size
        detail = block_detail(block, self.scheduler.running, block_size)
        return detail if salt is None or detail.root in (None, self.root(salt)) else detail.without_contents()

    def check_integrity(self) -> None:
        """Raises AssertionError, naming what is off, unless every invariant of pool, index and scheduler holds."""
        self.manager.check_integrity(self.scheduler.running)
        for sequence in self.scheduler.waiting:
            assert not sequence.block_table, f"{sequence.request_id} waits and holds blocks"
        for sequence in self.scheduler.running:
            most = self.manager.blocks_for(len(sequence.token_ids))
            assert len(sequence.block_table) <= most, f"{sequence.request_id} holds blocks for tokens that it hasn't"
        live = {sequence for request in self._requests for sequence in request.sequences}
        assert live == {*self.scheduler.running, *self.scheduler.waiting}, "the scheduler and the requests disagree"

    def _run(self, step: ScheduledStep, deltas: list[TokenDelta]) -> None:
        """Adds to `deltas` as it goes, so that a fault halfway loses no end that was reached before it."""
        started = time.perf_counter()
        for sequence in step.num_tokens:
            self._requests.times_of(sequence).mark_started(started)
        work = _work_of(step)
        self._counters.drafted_tokens += step.num_drafted
        batch, rows_of = build_batch(
            step.num_tokens, step.copies, self.manager.block_size, step.drafts, self._limits.shortest_window
        )
        logits = StepLogits(self._runner.execute(batch))
        step.is_computed = True
        if logits.faulty_rows:
            deltas += self._faults.take_out(step, rows_of, logits.faulty_rows)
        self._counters.count_prefill(step.num_tokens.values(), time.perf_counter() - started)
        for sequence, num_tokens in step.num_tokens.items():
            sequence.num_computed_tokens += num_tokens
            self.manager.publish(sequence)
        # Of the others, which are in the middle of their prompts, nothing is drawn yet.
        whole = [sequence for sequence in step.num_tokens if not sequence.num_remaining_tokens]
        searches = self._look_further(whole, rows_of, logits)
        drawn = self._draw(whole, rows_of, logits)
        self._learn_cost(step, time.perf_counter() - started)
        for sequence, token in drawn:
            deltas.append(self._append(sequence, token))
        for sequence, draft in step.drafts.items():
            self._verify(sequence, draft, rows_of[sequence].stop, logits, deltas)
        for beams in searches:
            beams.advance(self.scheduler)
            deltas += self._requests.end_search(beams) if beams.is_over else []
        for sequence in whole:
            sequence.is_suspect = False
        self._speed.add(work, time.perf_counter() - started, is_done=bool(whole))

    def _look_further(
        self, sequences: ListOf[Sequence], rows_of: Mapping[Sequence, range], logits: StepLogits
    ) -> list[BeamGroup]:
        """Tells searches what may follow their beams; gives those that can take their next step with it."""
        ready = []
        for sequence in sequences:
            beams = self._requests[sequence.request_id].beams
            if beams is not None:
                row = logits.values[rows_of[sequence].stop - 1]
                beams.take(sequence, likely_tokens(row, sequence, beams.score_of(sequence), beams.num_looked_at))
                if beams.is_ready:
                    ready.append(beams)
        return ready

    def _draw(
        self, sequences: ListOf[Sequence], rows_of: Mapping[Sequence, range], logits: StepLogits
    ) -> list[tuple[Sequence, SampledToken]]:
        """The next token of each that is no beam, and of the replies that part from it now."""
        drawing: list[Sequence] = []
        rows: list[int] = []
        for sequence in sequences:
            if self._requests[sequence.request_id].beams is None:
                family = [sequence, *self._requests.fork(sequence)]
                drawing += family
                rows += [rows_of[sequence].stop - 1] * len(family)
        return list(zip(drawing, sample(logits, drawing, rows), strict=True)) if drawing else []

    def _verify(
        self, sequence: Sequence, draft: ListOf[int], first_row: int, logits: StepLogits, deltas: list[TokenDelta]
    ) -> None:
        """Goes on for as long as the token drawn is the one that was guessed, and so computed already.

        Each token is drawn as it would be without a draft: from its own logits, which stand in row `first_row` and
        those behind it, with the penalties of what was drawn before it and the uniform number of its place. So a draft
        changes when a token comes, never which.
        """
        rows = range(first_row, first_row + len(draft))
        if reads_whole_row(sequence.params):
            logits.fetch(rows)
        for guess, row in zip(draft, rows, strict=True):
            if sequence.status is not SequenceStatus.RUNNING or sequence.token_ids[-1] != guess:
                break
            sequence.num_computed_tokens += 1
            sequence.num_accepted_tokens += 1
            self._counters.accepted_tokens += 1
            self.manager.publish(sequence)
            [token] = sample(logits, [sequence], [row])
            deltas.append(self._append(sequence, token))
        # What was computed for wrong guesses lies in slots that the next tokens overwrite, or in blocks given back.
        if sequence.status is SequenceStatus.RUNNING:
            self.manager.trim(sequence)

    def _learn_cost(self, step: ScheduledStep, step_s: float) -> None:
        """Only of steps in which each row is a token that decodes or was guessed."""
        drafter, num_decodes = self.scheduler.drafter, len(step.num_tokens)
        if drafter is not None and sum(step.num_tokens.values()) == num_decodes:
            drafter.learn(num_decodes + step.num_drafted, step.num_drafted, step_s)

    def _append(self, sequence: Sequence, token: SampledToken) -> TokenDelta:
        sequence.token_ids.append(token.token_id)
        reply = self._requests.reply_of(sequence)
        delta = reply.push(token.token_id, token.logprobs)
        if delta.finish_reason is not None:
            self._requests.take_out(reply)
        return delta


def _work_of(step: ScheduledStep) -> Work:
    """Before the step is carried out."""
    counts = {sequence: count + len(step.drafts.get(sequence, ())) for sequence, count in step.num_tokens.items()}
    pairs = sum(num_attended(sequence.num_computed_tokens, count) for sequence, count in counts.items())
    return Work(1, sum(counts.values()), pairs)
