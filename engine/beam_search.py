"""Beam search over what a model finds likely; knows nothing of blocks or of how likelihoods are computed.

As transformers' `generate` defines it, so that both find the same replies with the same scores:

- a *beam* is an unfinished reply; its score is the sum of its tokens' log probabilities;
- a step ranks the continuations of all beams together. Among the first `width` of them, those that end are finished
  replies: each scores its sum divided by its number of tokens to the power of the length penalty, and the `width` best
  ever found are kept. The first `width` that don't end are the next beams. So that there are always enough of these,
  max(2, 1 + the number of end tokens) * width continuations are looked at;
- it is over when no beam can go on; with early_stopping True as soon as `width` replies have ended; otherwise once so
  many have and the best beam, scored at the length it has ("never" with a length penalty over 0: at the longest that
  it may reach), wouldn't be better than the worst of them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .request import EarlyStopping, FinishReason, SamplingParams, TokenLogprobs


@dataclass(frozen=True, slots=True)
class Continuation:
    """A beam, by its rank among the present ones, and one token more.

    score: sum of log probabilities, this token's included.
    has_ended: by the token, or by a stop string that it completes; the limit of tokens is the search's own affair.
    """

    rank: int
    token_id: int
    score: float
    has_ended: bool = False
    logprobs: TokenLogprobs | None = None


@dataclass(frozen=True, slots=True)
class Beam:
    """The tokens of an unfinished reply and the sum of their log probabilities."""

    token_ids: tuple[int, ...] = ()
    score: float = 0.0
    logprobs: tuple[TokenLogprobs, ...] = ()

    def longer(self, continuation: Continuation) -> "Beam":
        logprobs = () if continuation.logprobs is None else (continuation.logprobs,)
        return Beam((*self.token_ids, continuation.token_id), continuation.score, self.logprobs + logprobs)


@dataclass(frozen=True, slots=True)
class Found:
    """A reply that the search has found; `score` is under the length penalty, None while it has no token."""

    token_ids: tuple[int, ...]
    score: float | None
    finish_reason: FinishReason
    logprobs: tuple[TokenLogprobs, ...] = ()


@dataclass(frozen=True, slots=True)
class Advance:
    """What became of the beams in one step, by their old ranks: `parents` of the new beams, and of what has ended."""

    parents: tuple[int, ...]
    ended: frozenset[int]


class BeamSearch:
    """One search, from the empty reply on.

    Always: beams, and replies found, stand best first and are at most `width`;
            all beams have the same number of tokens, less than `max_tokens`.
    """

    def __init__(self, params: SamplingParams, max_tokens: int) -> None:
        """max_tokens: the longest reply that params and window allow."""
        self._width = params.beam_width
        self._length_penalty = params.length_penalty
        self._early_stopping: EarlyStopping = params.early_stopping
        self._max_tokens = max_tokens
        self.beams: list[Beam] = [Beam()]
        self._finished: list[tuple[float, Found]] = []

    @property
    def is_over(self) -> bool:
        return not self.beams

    def advance(self, continuations: Iterable[Continuation], num_kept: int) -> Advance:
        """One step. Of equal scores the earlier continuation counts; no more than the best `num_kept` are looked at."""
        ranked = sorted(continuations, key=lambda continuation: -continuation.score)[:num_kept]
        num_tokens = len(self.beams[0].token_ids) + 1
        at_limit = num_tokens >= self._max_tokens
        ended = [each for each in ranked[: self._width] if each.has_ended or at_limit]
        for each in ended:
            self._finish(self.beams[each.rank].longer(each), "stop" if each.has_ended else "length")
        going_on = [] if at_limit else [each for each in ranked if not each.has_ended][: self._width]
        beams = [self.beams[each.rank].longer(each) for each in going_on]
        if not beams or self._is_settled(beams[0]):
            beams, going_on = [], []
        self.beams = beams
        return Advance(tuple(each.rank for each in going_on), frozenset(each.rank for each in ended))

    def best(self, count: int) -> list[Found]:
        """The best replies; before the search is over also beams, as far as they have come, as if cut off here."""
        found = [*self._finished, *((self.score(beam), self._found(beam, "abort")) for beam in self.beams)]
        return [each for _, each in sorted(found, key=lambda scored: -scored[0])[:count]]

    def score(self, beam: Beam) -> float:
        """Under the length penalty."""
        return self._score(beam.score, max(1, len(beam.token_ids)))

    def _finish(self, beam: Beam, reason: FinishReason) -> None:
        found = self._found(beam, reason)
        self._finished = sorted([*self._finished, (self.score(beam), found)], key=lambda scored: -scored[0])
        del self._finished[self._width :]

    def _found(self, beam: Beam, reason: FinishReason) -> Found:
        return Found(beam.token_ids, self.score(beam) if beam.token_ids else None, reason, beam.logprobs)

    def _is_settled(self, best_beam: Beam) -> bool:
        """Whether going on is of no use, by the rule of `early_stopping`."""
        if len(self._finished) < self._width:
            return False
        if self._early_stopping is True:
            return True
        num_tokens = len(best_beam.token_ids)
        if self._early_stopping == "never" and self._length_penalty > 0:
            num_tokens = self._max_tokens
        worst, _ = self._finished[-1]
        return self._score(best_beam.score, num_tokens) <= worst

    def _score(self, log_probability: float, num_tokens: int) -> float:
        return log_probability / num_tokens**self._length_penalty


def num_looked_at(params: SamplingParams, end_token_ids: Sequence[int] | frozenset[int]) -> int:
    """How many continuations a step looks at."""
    return max(2, 1 + len(end_token_ids)) * params.beam_width
