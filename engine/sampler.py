"""Draws the next token of each reply from its logits."""

from collections.abc import Sequence as ListOf
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .draw import draw
from .request import SamplingParams, TokenLogprobs
from .sequence import Sequence
from .step_logits import StepLogits

GREEDY_BELOW = 1e-3
"""Temperatures under this are taken as 0: rounding in half precision would decide between near-equal tokens."""
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
    return [_sample_one(logits, sequence, row) for sequence, row in zip(sequences, rows, strict=True)]


def reads_whole_row(params: SamplingParams) -> bool:
    """Whether more of a row is looked at than its largest logit."""
    return params.logprobs is not None or not _takes_likeliest(params)


def likely_tokens(logits: Tensor, sequence: Sequence, score: float, count: int) -> list[LikelyToken]:
    """The `count` likeliest tokens after a beam, likeliest first, from its row of `logits` [vocab] (float32).

    Penalties apply to log probabilities here, as in transformers' beam search, and sums are made in float32.
    """
    logprobs = torch.log_softmax(logits, dim=-1).cpu()
    token_ids = np.array(sequence.token_ids)
    adjusted = _penalise(logprobs.numpy(), sequence.params, token_ids, sequence.num_prompt_tokens)
    values, ids = torch.topk(torch.from_numpy(adjusted) + score, min(count, len(logprobs)))
    tokens = zip(ids.tolist(), values.tolist(), logprobs[ids].tolist(), strict=True)
    if sequence.params.logprobs is None:
        return [LikelyToken(token_id, value) for token_id, value, _ in tokens]
    top = _top_logprobs(logprobs, sequence.params.logprobs)
    return [LikelyToken(token_id, value, TokenLogprobs(token_id, own, top)) for token_id, value, own in tokens]


def _sample_one(logits: StepLogits, sequence: Sequence, row: int) -> SampledToken:
    params = sequence.params
    token_id = logits.likeliest(row) if _takes_likeliest(params) else _draw(logits[row], sequence)
    logprobs = None if params.logprobs is None else _logprobs(logits[row], token_id, params.logprobs)
    return SampledToken(token_id, logprobs)


def _draw(logits: Tensor, sequence: Sequence) -> int:
    params, adjusted = sequence.params, logits.float().numpy()
    if _has_penalties(params):
        token_ids = sequence.history.of(sequence.token_ids)
        adjusted = _penalise(adjusted, params, token_ids, sequence.num_prompt_tokens)
    if params.temperature < GREEDY_BELOW:
        return int(adjusted.argmax())
    return draw(adjusted, params, uniform(sequence.seed, len(sequence.token_ids)))


def _takes_likeliest(params: SamplingParams) -> bool:
    return params.temperature < GREEDY_BELOW and not _has_penalties(params)


def _has_penalties(params: SamplingParams) -> bool:
    return params.repetition_penalty != 1 or params.presence_penalty != 0 or params.frequency_penalty != 0


def _penalise(
    logits: NDArray[np.float32],  # [vocab]
    params: SamplingParams,
    token_ids: NDArray[np.int64],  # of prompt and reply together
    num_prompt_tokens: int,
) -> NDArray[np.float32]:
    """Repetition counts prompt and reply; presence and frequency count the reply alone."""
    adjusted = logits
    if params.repetition_penalty != 1:
        values = logits[token_ids]
        with np.errstate(over="ignore"):  # the largest numbers become infinite, as they should
            penalised = np.where(values > 0, values / params.repetition_penalty, values * params.repetition_penalty)
        adjusted = logits.copy()
        adjusted[token_ids] = penalised  # a token that occurs twice gets the same twice
    if params.presence_penalty == 0 and params.frequency_penalty == 0:
        return adjusted
    replied, occurrences = np.unique(token_ids[num_prompt_tokens:], return_counts=True)
    adjusted = adjusted.copy()
    adjusted[replied] -= params.presence_penalty + params.frequency_penalty * occurrences.astype(np.float32)
    return adjusted


def _logprobs(logits: Tensor, token_id: int, num_top: int) -> TokenLogprobs:
    logprobs = torch.log_softmax(logits, dim=-1)
    return TokenLogprobs(token_id, float(logprobs[token_id]), _top_logprobs(logprobs, num_top))


def _top_logprobs(logprobs: Tensor, num_top: int) -> tuple[tuple[int, float], ...]:
    values, ids = torch.topk(logprobs, min(num_top, len(logprobs)))
    return tuple(zip(ids.tolist(), values.tolist(), strict=True))
