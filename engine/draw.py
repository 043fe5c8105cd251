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
    if 0 < params.top_k < len(scaled):
        scaled[scaled < np.partition(scaled, -params.top_k)[-params.top_k]] = -np.inf
    weights = np.exp(scaled, out=scaled)  # 1 for the likeliest
    if params.min_p > 0:
        weights[weights < params.min_p] = 0
    if params.top_p < 1:
        weights[weights < _nucleus_bound(weights, params.top_p)] = 0
    return _invert(weights, number)


def _nucleus_bound(weights: NDArray[np.float32], top_p: float) -> np.float32:
    """The smallest weight in the smallest set of tokens that reaches `top_p` of the sum."""
    total = weights.sum(dtype=np.float64)
    # What is below this comes to no more than may be left out, and is most of a vocabulary: the rest is soon sorted.
    likely = weights[weights >= (1 - top_p) * total / len(weights)]
    largest = np.sort(likely)[::-1]
    reached = np.cumsum(largest, dtype=np.float64) >= top_p * total
    bound: np.float32 = largest[reached.argmax() if reached[-1] else -1]
    return bound


def _invert(weights: NDArray[np.float32], number: float) -> int:
    """The first token with which the sum of weights passes `number` of the whole: never one of weight 0."""
    num_whole = len(weights) // CHUNK * CHUNK
    # As a matrix product NumPy sums three times as fast. Sums of float32 are off by a ten millionth or so, by which the
    # likelihoods of a chunk's last tokens may be off then.
    chunk_sums = np.append(weights[:num_whole].reshape(-1, CHUNK) @ _ONES, weights[num_whole:].sum())
    sums_to = chunk_sums.cumsum(dtype=np.float64)
    target = number * sums_to[-1]
    chunk = min(int(sums_to.searchsorted(target, side="right")), int(chunk_sums.nonzero()[0][-1]))
    here = weights[chunk * CHUNK : (chunk + 1) * CHUNK]
    target -= sums_to[chunk - 1] if chunk else 0.0  # at least 0, so what has no weight isn't reached
    # Sums rounded in another order may leave the target behind the chunk's last token.
    place = min(int(here.cumsum(dtype=np.float64).searchsorted(target, side="right")), int(here.nonzero()[0][-1]))
    return chunk * CHUNK + place
