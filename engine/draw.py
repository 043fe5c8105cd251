"""Draws one token from one row of logits: temperature, what is cut off, and the cumulative distribution inverted.

Not by torch, which shares a row among its threads: those cost a row of 49,152 more than they save, and the compiled
step that comes next waits for its cores. All tokens are looked at once; after that, only those that may be drawn
(docs/performance.md).
"""

import numpy as np
from numpy.typing import NDArray

from ..kernels.cpu.token_weights import CHUNK, TokenWeights
from .request import SamplingParams


def draw(logits: NDArray[np.float32], params: SamplingParams, number: float) -> int:  # [vocab]
    """Inverts the cumulative distribution of what top-k, min-p and top-p leave, in the order of token ids, at `number`
    in [0, 1).

    The cuts are made by value, so tokens as likely as the last one kept are kept too, however a sort orders them.
    """
    logits = np.ascontiguousarray(logits, np.float32)
    weights = TokenWeights(logits, logits.max(), params.temperature)  # 1 for the likeliest
    least = params.min_p  # what weighs less is left out
    if 0 < params.top_k < len(logits):
        least = max(least, _weight_of_rank(weights, params.top_k))
    if params.top_p < 1:
        kept, theirs = _nucleus(weights, least, params.top_p)
    elif least > 0:
        kept, theirs = _from(weights, least)
    else:
        return _invert(weights, number)
    return int(kept[_place(theirs, number)])


_Tokens = tuple[NDArray[np.int64], NDArray[np.float32]]  # ids in their order, and what they weigh


def _from(weights: TokenWeights, least: float) -> _Tokens:
    """The tokens that weigh at least so much, which is more than 0."""
    chunks = np.flatnonzero(weights.peaks >= least)
    values = weights.of_chunks(chunks).reshape(-1)
    places = np.flatnonzero(values >= least)
    return chunks[places // CHUNK] * CHUNK + places % CHUNK, values[places]


def _weight_of_rank(weights: TokenWeights, rank: int) -> float:
    """What the token weighs that only `rank - 1` others outweigh; 0 is as good for one that weighs nothing."""
    bound = 0.0
    if rank <= len(weights.peaks):  # so many chunks hold a token that weighs as much: the one asked for does, too
        bound = np.partition(weights.peaks, -rank)[-rank]
    likely = _from(weights, bound)[1] if bound > 0 else weights.of_all().reshape(-1)
    return float(np.partition(likely, -rank)[-rank])


def _nucleus(weights: TokenWeights, least: float, top_p: float) -> _Tokens:
    """The tokens of the smallest set that reaches `top_p` of the sum of those from `least` on."""
    if least > 0:
        ids, theirs = _from(weights, least)
        total = float(theirs.sum())
    else:
        total = float(weights.sums.sum())
        # What is below this comes to no more than may be left out, and is most of a vocabulary: few are sorted then.
        ids, theirs = _from(weights, (1 - top_p) * total / weights.vocab_size)
    largest = np.sort(theirs)[::-1]
    reached = np.cumsum(largest, dtype=np.float64) >= top_p * total
    kept = theirs >= largest[reached.argmax() if reached[-1] else -1]
    return ids[kept], theirs[kept]


def _invert(weights: TokenWeights, number: float) -> int:
    """As `_place`, of a whole vocabulary: chunk by chunk, then in the one that it is.

    Sums of float32 are off by a ten millionth or so, by which the likelihoods of a chunk's last tokens may be off then.
    """
    sums_to = weights.sums.cumsum(dtype=np.float64)
    target = number * sums_to[-1]
    chunk = _first_beyond(sums_to, target, weights.sums)
    here = weights.of_chunks(np.array([chunk]))[0]
    target -= sums_to[chunk - 1] if chunk else 0.0  # at least 0, so what has no weight isn't reached
    return chunk * CHUNK + _first_beyond(here.cumsum(dtype=np.float64), target, here)


def _place(weights: NDArray[np.float32], number: float) -> int:
    """The first of them with which their sum passes `number` of the whole: never one of weight 0."""
    sums_to = weights.cumsum(dtype=np.float64)
    return _first_beyond(sums_to, number * sums_to[-1], weights)


def _first_beyond(sums_to: NDArray[np.float64], target: float, weights: NDArray[np.float32]) -> int:
    """The first place where the sum of weights is beyond `target`; where rounding leaves none, the last with weight."""
    place = int(sums_to.searchsorted(target, side="right"))
    return place if place < len(weights) else int(weights.nonzero()[0][-1])
