"""The beams of one request as sequences that share their blocks."""

from collections.abc import Iterable
from dataclasses import dataclass

from .beam_search import BeamSearch, Continuation, Found, num_looked_at
from .block_use import held_together
from .request import BeamPreview, BlockUse, FinishReason, TokenDelta
from .request_times import RequestTimes
from .sampler import LikelyToken
from .scheduler import Scheduler
from .sequence import Sequence, SequenceStatus
from .text.detokenizer import Detokenizer
from .text.stop_strings import StopStrings
from .text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class _Watched:
    """The text of a beam as far as stop strings need it; never changed, for several beams go on from one."""

    detokenizer: Detokenizer
    stop_strings: StopStrings

    def after(self, token_id: int) -> "tuple[_Watched, bool]":
        """With one token more; whether that completes a stop string."""
        longer = _Watched(self.detokenizer.fork(), self.stop_strings.fork())
        _, stop = longer.stop_strings.push(longer.detokenizer.push([token_id]))
        return longer, stop is not None


class BeamGroup:
    """Runs a `BeamSearch` on forks: a beam that goes on in several ways forks, one that goes on in none is finished
    and its blocks are free with that step.

    A step of the search needs the continuations of all beams. One whose own are known is idle until its siblings' are,
    whether they come in the same step of the engine, as they mostly do, or the budget or the pool makes them wait.

    Always: `sequences` are the beams, in the search's order, each with the prompt and the beam's tokens.
    """

    def __init__(
        self, sequence: Sequence, end_token_ids: frozenset[int], tokenizer: Tokenizer | None, submitted: float
    ) -> None:
        """`sequence`: the prompt and what each reply begins with; it holds the places of all beams from the start."""
        self.params = sequence.params
        self.times = RequestTimes(submitted)
        self.sequences = [sequence]
        self.block_use: BlockUse | None = None
        limit = sequence.max_len - sequence.num_given_tokens
        if self.params.max_tokens is not None:
            limit = min(limit, self.params.max_tokens - sequence.num_start_tokens)
        self._search = BeamSearch(self.params, limit)
        self._num_looked_at = num_looked_at(self.params, end_token_ids)
        self._prompt = sequence
        self._end_token_ids = end_token_ids
        self._tokenizer = tokenizer
        self._start_ids = tuple(sequence.output_token_ids)
        self._continuations: dict[Sequence, list[Continuation]] = {}
        self._texts: list[_Watched] = []
        if self.params.stop and tokenizer is not None:
            text = _Watched(Detokenizer(tokenizer), StopStrings(self.params.stop))
            for token_id in self._start_ids:
                text, _ = text.after(token_id)
            self._texts = [text]

    @property
    def num_looked_at(self) -> int:
        """How many continuations of a beam matter, at most."""
        return self._num_looked_at

    @property
    def is_over(self) -> bool:
        return self._search.is_over

    @property
    def is_ready(self) -> bool:
        """Whether the continuations of all beams are known."""
        return len(self._continuations) == len(self.sequences)

    def score_of(self, sequence: Sequence) -> float:
        """Sum of the log probabilities of the beam's tokens."""
        return self._search.beams[self.sequences.index(sequence)].score

    def take(self, sequence: Sequence, likely: Iterable[LikelyToken]) -> None:
        """What may follow a beam."""
        rank = self.sequences.index(sequence)
        self._continuations[sequence] = [
            Continuation(rank, token.token_id, token.score, token.token_id in self._end_token_ids, token.logprobs)
            for token in likely
        ]
        sequence.is_idle = True

    def advance(self, scheduler: Scheduler) -> None:
        """One step of the search: sequences fork and end."""
        old, texts = self.sequences, self._texts
        continuations = [each for sequence in old for each in self._with_stops(self._continuations[sequence])]
        self._continuations = {}
        self._measure()
        step = self._search.advance(continuations, self._num_looked_at)
        self.times.mark_token()
        self._prompt.num_forks = 0
        for rank, sequence in enumerate(old):
            if rank not in step.parents:
                # Of a beam that led to a reply the next turn reuses the tail too; of one that is dropped nobody does.
                if rank not in step.ended:
                    scheduler.manager.forget_tail(sequence)
                scheduler.finish(sequence)
        self.sequences = self._children(step.parents, scheduler)
        # Only now, for a fork begins with what its parent holds.
        for sequence, beam in zip(self.sequences, self._search.beams, strict=True):
            sequence.token_ids.append(beam.token_ids[-1])
            sequence.is_idle = False
        if texts:
            pairs = zip(step.parents, self._search.beams, strict=True)
            self._texts = [texts[rank].after(beam.token_ids[-1])[0] for rank, beam in pairs]

    def preview(self) -> BeamPreview | None:
        """The best beam; None before the first step of the search."""
        best = self._search.beams[0] if self._search.beams else None
        if best is None or not best.token_ids:
            return None
        return BeamPreview(
            self._prompt.request_id,
            len(self.sequences),
            self._start_ids + best.token_ids,
            self._text(self._start_ids + best.token_ids),
            self._search.score(best),
        )

    def end(self, scheduler: Scheduler) -> None:
        """Takes what still runs out; what was found stays."""
        self._measure()
        for sequence in self.sequences:
            scheduler.finish(sequence)
        self.sequences = []

    def deltas(self, reason: FinishReason | None = None, error: str | None = None) -> list[TokenDelta]:
        """The n best replies, each whole; `reason` is why the search was cut short, if it was.

        Fewer than n are known only where it was cut short before its first token; the others are empty then.
        """
        found = self._search.best(self.params.n)
        found += [Found((), None, "abort")] * (self.params.n - len(found))
        return [self._delta(sample, each, reason, error) for sample, each in enumerate(found)]

    def _with_stops(self, continuations: list[Continuation]) -> list[Continuation]:
        """Those that complete a stop string have ended."""
        if not self._texts:
            return continuations
        return [
            each
            if each.has_ended
            else Continuation(
                each.rank, each.token_id, each.score, self._texts[each.rank].after(each.token_id)[1], each.logprobs
            )
            for each in continuations
        ]

    def _children(self, parents: tuple[int, ...], scheduler: Scheduler) -> list[Sequence]:
        """The sequence of each new beam: the first that goes on from a parent is that parent itself."""
        old = self.sequences
        used = {old[rank].sample for rank in parents}
        unused = iter([sample for sample in range(self.params.beam_width) if sample not in used])
        children: list[Sequence] = []
        for place, rank in enumerate(parents):
            is_first = rank not in parents[:place]
            children.append(old[rank] if is_first else scheduler.fork(old[rank], next(unused)))
        return children

    def _measure(self) -> None:
        use = held_together(self.sequences)
        if self.block_use is None or use.num_blocks > self.block_use.num_blocks:
            self.block_use = use
        most = max((sequence.num_preemptions for sequence in self.sequences), default=0)
        self._prompt.num_preemptions = max(self._prompt.num_preemptions, most)

    def _delta(self, sample: int, found: Found, reason: FinishReason | None, error: str | None) -> TokenDelta:
        sequence = self._prompt.fork(sample, SequenceStatus.FINISHED)
        sequence.token_ids[sequence.num_given_tokens :] = found.token_ids
        reply_ids = self._start_ids + found.token_ids
        return TokenDelta(
            sequence.request_id,
            sample,
            reply_ids,
            self._text(reply_ids),
            reason or found.finish_reason,
            found.logprobs,
            self.times.stats(sequence, self.block_use),
            error,
            score=found.score,
        )

    def _text(self, token_ids: tuple[int, ...]) -> str:
        """Without an end token and what follows a stop string."""
        if self._tokenizer is None:
            return ""
        if token_ids and token_ids[-1] in self._end_token_ids:
            token_ids = token_ids[:-1]
        detokenizer, stop_strings = Detokenizer(self._tokenizer), StopStrings(self.params.stop)
        text, _ = stop_strings.push(detokenizer.push(token_ids))
        return text + stop_strings.finish()
