"""Draws the next token of each reply from its logits."""

from collections.abc import Sequence as ListOf
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .draw import GREEDY_BELOW, Draw, draw, has_penalties, penalise
from .request import SamplingParams, TokenLogprobs
from .sequence import Sequence
from .step_logits import StepLogits

POSITIONS_AT_ONCE = 64
"""Whose uniform numbers are made together: to make a generator takes longer than its numbers."""


@dataclass(frozen=True, slots=True)
class SampledToken:
    token_id: int
    logprobs: TokenLogprobs | None = None


@dataclass(frozen=True, slots=True)
class LikelyToken:
    """A token that may follow a beam; `score` is the beam's log probability with the token's."""

    token_id: int
    score: float
    logprobs: TokenLogprobs | None = None


def uniform(seed: int, position: int) -> float:
    """The number in [0, 1) that belongs to a seed and a position.

    A counter-based generator (Philox, Salmon et al. 2011) has no state to lose: the number is the same whether the
    reply runs alone, in a batch, or again after preemption.
    """
    return _uniforms(seed, position // POSITIONS_AT_ONCE)[position % POSITIONS_AT_ONCE]


@lru_cache(maxsize=1024)
def _uniforms(seed: int, run: int) -> list[float]:
    """Of POSITIONS_AT_ONCE neighbouring positions. A count of Philox gives four numbers, of which the first counts."""
    generator = np.random.Generator(np.random.Philox(key=seed, counter=run * POSITIONS_AT_ONCE))
    numbers: list[float] = generator.random((POSITIONS_AT_ONCE, 4))[:, 0].tolist()
    return numbers


def sample(logits: StepLogits, sequences: ListOf[Sequence], rows: ListOf[int]) -> list[SampledToken]:
    """One token for each sequence from its row of `logits`; several may share a row.

    Each row is worked on alone, so a reply doesn't depend on its neighbours. The number drawn for a token belongs to
    the seed and to the token's place in prompt and reply together.
    """
    logits.fetch(row for sequence, row in zip(sequences, rows, strict=True) if reads_whole_row(sequence.params))
    wanted = {
        place: _wanted(logits[row], sequence)
        for place, (sequence, row) in enumerate(zip(sequences, rows, strict=True))
        if not _takes_likeliest(sequence.params)
    }
    drawn = dict(zip(wanted, draw(list(wanted.values())), strict=True)) if wanted else {}
    tokens = []
    for place, (sequence, row) in enumerate(zip(sequences, rows, strict=True)):
        token_id = drawn[place] if place in drawn else logits.likeliest(row)
        num_top = sequence.params.logprobs
        tokens.append(SampledToken(token_id, None if num_top is None else _logprobs(logits[row], token_id, num_top)))
    return tokens


def reads_whole_row(params: SamplingParams) -> bool:
    """Whether more of a row is looked at than its largest logit."""
    return params.logprobs is not None or not _takes_likeliest(params)


def likely_tokens(logits: Tensor, sequence: Sequence, score: float, count: int) -> list[LikelyToken]:
    """The `count` likeliest tokens after a beam, likeliest first, from its row of `logits` [vocab] (float32).

    Penalties apply to log probabilities here, as in transformers' beam search, and sums are made in float32.
    """
    logprobs = torch.log_softmax(logits, dim=-1).cpu()
    adjusted = logprobs
    if has_penalties(sequence.params):
        adjusted = logprobs.clone()
        penalise(adjusted.numpy(), sequence.params, np.array(sequence.token_ids), sequence.num_prompt_tokens)
    values, ids = torch.topk(adjusted + score, min(count, len(logprobs)))
    tokens = zip(ids.tolist(), values.tolist(), logprobs[ids].tolist(), strict=True)
    if sequence.params.logprobs is None:
        return [LikelyToken(token_id, value) for token_id, value, _ in tokens]
    top = _top_logprobs(logprobs, sequence.params.logprobs)
    return [LikelyToken(token_id, value, TokenLogprobs(token_id, own, top)) for token_id, value, own in tokens]


def _wanted(logits: NDArray[np.float32], sequence: Sequence) -> Draw:
    params = sequence.params
    number = uniform(sequence.seed, len(sequence.token_ids))
    if not has_penalties(params):
        return Draw(logits, params, number)
    return Draw(logits, params, number, sequence.history.of(sequence.token_ids), sequence.num_prompt_tokens)


def _takes_likeliest(params: SamplingParams) -> bool:
    return params.temperature < GREEDY_BELOW and not has_penalties(params)


def _logprobs(logits: NDArray[np.float32], token_id: int, num_top: int) -> TokenLogprobs:
    logprobs = torch.log_softmax(torch.from_numpy(logits), dim=-1)
    return TokenLogprobs(token_id, float(logprobs[token_id]), _top_logprobs(logprobs, num_top))


def _top_logprobs(logprobs: Tensor, num_top: int) -> tuple[tuple[int, float], ...]:
    values, ids = torch.topk(logprobs, min(num_top, len(logprobs)))
    return tuple(zip(ids.tolist(), values.tolist(), strict=True))
