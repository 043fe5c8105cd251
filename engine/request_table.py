"""Every request that the engine works for: how its replies begin, part from their prompt, and end."""

import time
from collections.abc import Iterator

from .beam_group import BeamGroup
from .block_use import BlockCount
from .reply import Reply
from .request import BeamPreview, FinishReason, TokenDelta
from .request_check import ModelLimits
from .request_times import RequestTimes
from .running_request import RunningRequest
from .scheduler import Scheduler
from .sequence import Sequence, SequenceStatus
from .text.tokenizer import Tokenizer


class RequestTable:
    """Requests by their ids.

    Always: a request is here until all its replies have ended, and then nothing of it is left;
            the scheduler has the sequences of these requests and no others.
    """

    def __init__(self, scheduler: Scheduler, limits: ModelLimits, tokenizer: Tokenizer | None) -> None:
        self._scheduler = scheduler
        self._limits = limits
        self._tokenizer = tokenizer
        self._by_id: dict[str, RunningRequest] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[RunningRequest]:
        return iter(self._by_id.values())

    def __getitem__(self, request_id: str) -> RunningRequest:
        return self._by_id[request_id]

    def get(self, request_id: str) -> RunningRequest | None:
        return self._by_id.get(request_id)

    def reply_of(self, sequence: Sequence) -> Reply:
        return self._by_id[sequence.request_id].replies[sequence.sample]

    def times_of(self, sequence: Sequence) -> RequestTimes:
        beams = self._by_id[sequence.request_id].beams
        return self.reply_of(sequence).times if beams is None else beams.times

    def beam_previews(self) -> list[BeamPreview]:
        """Where each beam search that has begun stands."""
        searches = [request.beams for request in self if request.beams is not None]
        return [preview for beams in searches if (preview := beams.preview()) is not None]

    def add(self, sequence: Sequence) -> list[TokenDelta]:
        """A request that is submitted now, as the sequence of its prompt; gives its ends if it has ended already.

        That is so where what its replies begin with holds an end token, or a stop string, or as much as they may.
        """
        params = sequence.params
        request = RunningRequest(
            sequence.request_id,
            params.n,
            submitted=time.perf_counter(),
            blocks=BlockCount() if params.n > 1 else None,
        )
        reply = self._new_reply(request, sequence)
        self._by_id[request.request_id] = request
        self._scheduler.add(sequence)
        if params.is_beam_search and reply.end_at_start is None:
            sequence.num_forks = params.num_sequences - 1
            end_token_ids = self._limits.end_token_ids_for(params)
            request.beams = BeamGroup(sequence, end_token_ids, self._tokenizer, request.submitted)
            return []
        sequence.num_forks = params.n - 1
        request.replies.append(reply)
        return [] if reply.end_at_start is None else self.end_all(request, reply.end_at_start)

    def fork(self, sequence: Sequence) -> list[Sequence]:
        """The replies that part from a sequence whose prompt is computed now."""
        children = [self._scheduler.fork(sequence, sequence.sample + i) for i in range(1, sequence.num_forks + 1)]
        sequence.num_forks = 0
        for child in children:
            reply = self._add_reply(self._by_id[sequence.request_id], child)
            reply.times.mark_started(time.perf_counter())
        return children

    def take_out(self, reply: Reply) -> None:
        """A reply whose last delta is made gives its blocks back."""
        request = self._by_id[reply.sequence.request_id]
        self._scheduler.finish(reply.sequence)
        request.num_finished += 1
        if request.num_finished == request.num_samples:
            del self._by_id[request.request_id]

    def end(self, reply: Reply, reason: FinishReason, error: str | None = None) -> TokenDelta:
        """Ends a reply that would go on."""
        delta = reply.end(reason, error)
        self.take_out(reply)
        return delta

    def end_all(self, request: RunningRequest, reason: FinishReason, error: str | None = None) -> list[TokenDelta]:
        """Ends what still grows; samples that never parted from their prompt end with it, each with a delta."""
        if request.beams is not None:
            return self.end_search(request.beams, reason, error)
        live = [reply for reply in request.replies if not reply.has_ended]
        first = request.replies[0].sequence
        live += [
            self._add_reply(request, first.fork(sample_index, SequenceStatus.FINISHED))
            for sample_index in range(1, first.num_forks + 1)
        ]
        first.num_forks = 0
        return [self.end(reply, reason, error) for reply in live]

    def end_search(
        self, beams: BeamGroup, reason: FinishReason | None = None, error: str | None = None
    ) -> list[TokenDelta]:
        """Ends a search with the best that it has found; `reason` is why it was cut short, if it was."""
        beams.end(self._scheduler)
        deltas = beams.deltas(reason, error)
        del self._by_id[deltas[0].request_id]
        return deltas

    def _add_reply(self, request: RunningRequest, sequence: Sequence) -> Reply:
        reply = self._new_reply(request, sequence)
        request.replies.append(reply)
        return reply

    def _new_reply(self, request: RunningRequest, sequence: Sequence) -> Reply:
        end_token_ids = self._limits.end_token_ids_for(sequence.params)
        return Reply(sequence, self._tokenizer, request.submitted, end_token_ids, request.blocks)
