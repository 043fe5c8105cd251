"""What the logits of one row weigh as likelihoods: sums and peaks of chunks, in one pass over the vocabulary.

Whoever draws a token then looks only into the chunks that matter: the one in which a sum passes a number, or the few
that hold anything likely.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from . import simd
from .simd import FLOATS, I64, LANES, SOURCE_STAMP, compiled

CHUNK = 256
NOTHING = float("-inf")  # a logit that weighs nothing


@intrinsic
def _weigh_chunk(typing_context: Any, logits, top, inverse, total, peak, weights):  # type: ignore[no-untyped-def]
    """e^((logits - top) · inverse) of one chunk: its sum, its greatest, and all of it, each by address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        logits, top, inverse, total, peak, weights = arguments
        tops, inverses = simd.splat(builder, top), simd.splat(builder, inverse)
        sums, peaks = (simd.variable(builder, simd.floats(0.0)) for _ in range(2))
        with cgutils.for_range(builder, I64(CHUNK // LANES)) as loop:
            offset = builder.mul(loop.index, I64(4 * LANES))
            logit = simd.load(builder, simd.at(builder, logits, offset), FLOATS)
            weight = simd.exp(builder, builder.fmul(builder.fsub(logit, tops), inverses))
            simd.store(builder, weight, simd.at(builder, weights, offset))
            builder.store(builder.fadd(builder.load(sums), weight), sums)
            builder.store(simd.maximum(builder, builder.load(peaks), weight), peaks)
        simd.store(builder, simd.lanes_sum(builder, builder.load(sums)), total)
        simd.store(builder, simd.lanes_max(builder, builder.load(peaks)), peak)
        return context.get_dummy_value()

    return types.void(types.uint64, types.float32, types.float32, *([types.uint64] * 3)), generate


@cache
def _compile() -> Callable[..., None]:
    stamp = SOURCE_STAMP

    @compiled(cache=True)
    def weigh(logits_at, num_whole, rest, top, inverse, chunks, sums, peaks, weights):  # type: ignore[no-untyped-def]
        """Of these chunks; `weights` has a row for each of them, or one that each writes over."""
        _ = stamp
        rest_at, sums_at = np.uint64(rest.ctypes.data), np.uint64(sums.ctypes.data)
        peaks_at, weights_at = np.uint64(peaks.ctypes.data), np.uint64(weights.ctypes.data)
        keeps_all = np.uint64(weights.shape[0] > 1)
        for i in range(chunks.shape[0]):
            number, chunk_bytes = np.uint64(i), np.uint64(4 * CHUNK)
            source = logits_at + np.uint64(chunks[i]) * chunk_bytes if chunks[i] < num_whole else rest_at
            _weigh_chunk(source, top, inverse, sums_at + np.uint64(4) * number, peaks_at + np.uint64(4) * number,
                         weights_at + keeps_all * number * chunk_bytes)  # fmt: skip

    return weigh


class TokenWeights:
    """e^((logit - top) / temperature) of a vocabulary's tokens: 1 for one whose logit is `top`.

    What all chunks weigh is summed at once. What each token weighs isn't kept, but computed again where it is asked
    for: to write it all down takes longer.
    """

    def __init__(self, logits: NDArray[np.float32], top: float, temperature: float) -> None:
        """logits: [vocab], one after the other in memory, none above `top`; -inf weighs nothing."""
        self.vocab_size = len(logits)
        self._logits, self._top, self._inverse = logits, np.float32(top), np.float32(1 / temperature)
        num_left = len(logits) % CHUNK
        self._rest = np.full(CHUNK if num_left else 0, NOTHING, np.float32)
        self._rest[:num_left] = logits[len(logits) - num_left :]
        self._chunks = np.arange(-(-len(logits) // CHUNK))
        self.sums, self.peaks, _ = self._weigh(self._chunks, np.empty((1, CHUNK), np.float32))
        """float32 [chunks]: what the tokens of each chunk weigh together, and the heaviest of them."""

    def of_chunks(self, chunks: NDArray[np.int64]) -> NDArray[np.float32]:  # [n] → [n, CHUNK]
        """What their tokens weigh; 0 for places behind the vocabulary's end."""
        return self._weigh(chunks, np.empty((len(chunks), CHUNK), np.float32))[2]

    def of_all(self) -> NDArray[np.float32]:  # [chunks, CHUNK]
        return self.of_chunks(self._chunks)

    def _weigh(
        self, chunks: NDArray[np.int64], weights: NDArray[np.float32]
    ) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]:
        sums, peaks = np.empty(len(chunks), np.float32), np.empty(len(chunks), np.float32)
        at, num_whole = np.uint64(self._logits.ctypes.data), self.vocab_size // CHUNK
        _compile()(at, num_whole, self._rest, self._top, self._inverse, chunks, sums, peaks, weights)
        return sums, peaks, weights
