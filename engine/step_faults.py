"""What becomes of the requests in a step that raised, or that came to numbers that aren't any."""

import logging
from collections.abc import Mapping
from typing import Protocol

from .batch import Batch, build_batch
from .events import EventKind
from .model.memory import is_out_of_memory
from .request import FinishReason, TokenDelta
from .request_table import RequestTable
from .running_request import RunningRequest
from .scheduler import ScheduledStep, Scheduler
from .sequence import Sequence, SequenceStatus

logger = logging.getLogger(__name__)


class LayerFinder(Protocol):
    """Tells which layer makes a batch's logits NaN or infinite; `ModelRunner`, or a stand-in in tests."""

    def find_faulty_layer(self, batch: Batch) -> int | None: ...  # as ModelRunner's


class StepFaults:
    """Saves what can be saved: whoever isn't to blame is computed again, as after preemption.

    A sequence that a fault has touched is *suspect*: its blocks of that step are given back, for what they hold is
    unknown, and it is computed again in steps of its own. What fails alone has failed for good; what comes through is
    suspect no longer. Its tokens are what it has, and numbers are drawn by seed and place, so nothing it said changes.

    Always: nothing that a failed step wrote is ever published.
    """

    def __init__(
        self, scheduler: Scheduler, requests: RequestTable, layer_finder: LayerFinder, num_layers: int
    ) -> None:
        self._scheduler = scheduler
        self._requests = requests
        self._layer_finder = layer_finder
        self._num_layers = num_layers

    def recover(self, step: ScheduledStep, error: Exception) -> list[TokenDelta]:
        """After a step that raised; gives the ends of those who were alone in it.

        A search whose step was computed is amid its own bookkeeping then, and can't be taken back.
        """
        message = _words_for(error)
        logger.error("a step failed, its sequences are tried alone: %s", message, exc_info=error)
        deltas = []
        for sequence in self._touched(step):
            if sequence.status is not SequenceStatus.RUNNING:
                continue  # it ended in this very step, before the fault or with another reply of its request
            is_search = self._requests[sequence.request_id].beams is not None
            if sequence.is_suspect or (is_search and step.is_computed):
                deltas += self._end(sequence, message)
            else:
                self._scheduler.retry_alone(sequence)
        return deltas

    def take_out(
        self, step: ScheduledStep, rows_of: Mapping[Sequence, range], faulty: frozenset[int]
    ) -> list[TokenDelta]:
        """Takes out of a computed step, before anything of it is published, whose logits aren't numbers.

        rows_of: each sequence's rows of the logits, as of `build_batch`; faulty: rows that aren't finite.

        Each is computed once more, alone, to find the layer. Where that goes well the fault came from elsewhere, and
        the sequence is tried again; gives the ends of the others. A guess that leads to no number counts as wrong.
        """
        deltas = []
        for sequence, rows in rows_of.items():
            if sequence.status is not SequenceStatus.RUNNING:
                continue  # a beam that has ended with another one
            if faulty.isdisjoint(rows):
                if draft := step.drafts.get(sequence):
                    step.drafts[sequence] = draft[: _num_sound(rows.stop, len(draft), faulty)]
                continue
            layer = self._layer_of(sequence, step.num_tokens[sequence])
            if layer is None and not sequence.is_suspect:
                logger.error(
                    "numbers that aren't finite came once and not again; %s is tried alone", sequence.request_id
                )
                self._scheduler.retry_alone(sequence)
            else:
                deltas += self._end(sequence, self._words_for_layer(layer))
        for sequence in [each for each in step.num_tokens if each.status is not SequenceStatus.RUNNING]:
            step.drop(sequence)
        return deltas

    def end_all(self, step: ScheduledStep, reason: FinishReason) -> list[TokenDelta]:
        """Ends every request in a step that was interrupted."""
        deltas = []
        for sequence in step.num_tokens:
            request = self._requests.get(sequence.request_id)
            if request is not None:  # otherwise it ended in this very step
                deltas += self._end_request(request, reason)
                self._record_failure(sequence)
        return deltas

    def _touched(self, step: ScheduledStep) -> list[Sequence]:
        """Those in the step, and those that parted from one of them in it and got no token of their own.

        Whoever waits or has ended has all its tokens to compute, for its blocks are given back.
        """
        requests = {sequence.request_id: self._requests.get(sequence.request_id) for sequence in step.num_tokens}
        parted = [
            sequence
            for request in requests.values()
            if request is not None
            for sequence in request.sequences
            if sequence not in step.num_tokens and not sequence.num_remaining_tokens and not sequence.is_idle
        ]
        return [*step.num_tokens, *parted]

    def _end(self, sequence: Sequence, error: str) -> list[TokenDelta]:
        """Ends the one reply, or all that the sequence stands for: those still to part from it, or a search."""
        request = self._requests[sequence.request_id]
        self._record_failure(sequence)
        if request.beams is not None or sequence.num_forks:
            return self._end_request(request, "error", error)
        self._scheduler.manager.forget_tail(sequence)
        return [self._requests.end(self._requests.reply_of(sequence), "error", error)]

    def _end_request(self, request: RunningRequest, reason: FinishReason, error: str | None = None) -> list[TokenDelta]:
        for sequence in request.sequences:
            self._scheduler.manager.forget_tail(sequence)
        return self._requests.end_all(request, reason, error)

    def _record_failure(self, sequence: Sequence) -> None:
        events = self._scheduler.manager.events
        events.request_id = sequence.request_id
        events.record(EventKind.FAILED)

    def _layer_of(self, sequence: Sequence, num_tokens: int) -> int | None:
        """The layer at fault; None where the sequence's part of the step comes out well when it is alone."""
        batch, _ = build_batch({sequence: num_tokens}, (), self._scheduler.manager.block_size)
        return self._layer_finder.find_faulty_layer(batch)

    def _words_for_layer(self, layer: int | None) -> str:
        if layer is None:
            where = "the model came to numbers that aren't finite (NaN or infinity), from no layer that could be found"
        elif layer == 0:
            where = "the model's embedding or output head gave numbers that aren't finite (NaN or infinity)"
        else:
            where = f"layer {layer} of {self._num_layers} gave numbers that aren't finite (NaN or infinity)"
        return (
            f"{where} for this request: the model's file may be damaged (fetch it again), or its numbers too large "
            f"for this dtype (try float32)"
        )


def _num_sound(first_row: int, num_rows: int, faulty: frozenset[int]) -> int:
    """How many rows from `first_row` on, of so many, are no faulty ones."""
    return next((i for i in range(num_rows) if first_row + i in faulty), num_rows)


def _words_for(error: Exception) -> str:
    if is_out_of_memory(error):
        return (
            f"memory ran out while this request was computed: close other programs, or give the cache less "
            f"(kv_memory) and the steps fewer tokens (max_num_batched_tokens) ({error})"
        )
    return f"the step that computed this request failed: {type(error).__name__}: {error}"
