"""Draws one token from one row of logits: temperature, what is cut off, and the cumulative distribution inverted.

In NumPy, for torch shares a row among its threads: those cost a row of 49,152 more than they save, and the compiled
step that comes next waits for its cores (docs/performance.md).
"""

import numpy as np
from numpy.typing import NDArray

from .request import SamplingParams

CHUNK = 256
"""Tokens whose weights are summed before it is known in which chunk the drawn one is."""
_ONES = np.ones(CHUNK, np.float32)


def draw(logits: NDArray[np.float32], params: SamplingParams, number: float) -> int:  # [vocab]
    """Inverts the cumulative distribution of what top-k, min-p and top-p leave, in the order of token ids, at `number`
    in [0, 1).

    The cuts are made by value, so tokens as likely as the last one kept are kept too, however a sort orders them.
    """
    with np.errstate(over="ignore"):  # what is infinitely unlikely then has no weight
        # Subtracting the largest first keeps the smallest temperature from overflowing.
        scaled = logits - logits.max()
        if params.temperature != 1:
            scaled /= np.float32(params.temperature)
    weights = np.exp(scaled, out=scaled)  # 1 for the likeliest
    least = params.min_p  # what weighs less is left out
    if 0 < params.top_k < len(weights):
        least = max(least, np.partition(weights, -params.top_k)[-params.top_k])
    if params.top_p < 1:
        kept = _nucleus(weights, least, params.top_p)
    elif least > 0:
        kept = np.flatnonzero(weights >= least)
    else:
        return _invert(weights, number)
    return int(kept[_place(weights[kept], number)])


def _nucleus(weights: NDArray[np.float32], least: float, top_p: float) -> NDArray[np.int64]:
    """The tokens of the smallest set that reaches `top_p` of the sum of those from `least` on, in the order of ids."""
    total = (weights if least == 0 else weights[weights >= least]).sum()
    # What is below this comes to no more than may be left out, and is most of a vocabulary: the rest is soon sorted.
    likely = np.flatnonzero(weights >= max(least, (1 - top_p) * total / len(weights)))
    theirs = weights[likely]
    largest = np.sort(theirs)[::-1]
    reached = np.cumsum(largest, dtype=np.float64) >= top_p * float(total)
    return likely[theirs >= largest[reached.argmax() if reached[-1] else -1]]


def _place(weights: NDArray[np.float32], number: float) -> int:
    """The first of them with which their sum passes `number` of the whole: never one of weight 0."""
    sums_to = weights.cumsum(dtype=np.float64)
    return _first_beyond(sums_to, number * sums_to[-1], weights)


def _invert(weights: NDArray[np.float32], number: float) -> int:
    """As `_place`, of a whole vocabulary: chunk by chunk, then in the one that it is."""
    num_whole = len(weights) // CHUNK * CHUNK
    # As a matrix product NumPy sums three times as fast. Sums of float32 are off by a ten millionth or so, by which the
    # likelihoods of a chunk's last tokens may be off then.
    chunk_sums = np.append(weights[:num_whole].reshape(-1, CHUNK) @ _ONES, weights[num_whole:].sum())
    sums_to = chunk_sums.cumsum(dtype=np.float64)
    target = number * sums_to[-1]
    chunk = _first_beyond(sums_to, target, chunk_sums)
    here = weights[chunk * CHUNK : (chunk + 1) * CHUNK]
    target -= sums_to[chunk - 1] if chunk else 0.0  # at least 0, so what has no weight isn't reached
    return chunk * CHUNK + _first_beyond(here.cumsum(dtype=np.float64), target, here)


def _first_beyond(sums_to: NDArray[np.float64], target: float, weights: NDArray[np.float32]) -> int:
    """The first place where the sum of weights is beyond `target`; where rounding leaves none, the last with weight."""
    place = int(sums_to.searchsorted(target, side="right"))
    return place if place < len(weights) else int(weights.nonzero()[0][-1])
