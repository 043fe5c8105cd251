"""A row of logits, looked at in chunks of the vocabulary: the largest logit of each, and what its tokens weigh.

Whoever draws a token looks only into the chunks that matter: the one in which a sum passes a number, or the few that
hold anything likely.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray, types
from numba.core import cgutils
from numba.extending import intrinsic

from . import simd
from .simd import F32, FLOATS, I16, I64, LANES, SOURCE_STAMP, TRUTHS, compiled, pointer

CHUNK = 256
NOTHING = float("-inf")  # a logit that weighs nothing
_NUM_PEAKS = 4  # taken beside each other, for each waits for the one before


@intrinsic
def _peak(typing_context: Any, logits: Any) -> Any:
    """The largest of a chunk's logits, by its address; NaN if there is one."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        peaks = [simd.floats(NOTHING)] * _NUM_PEAKS
        is_nan = ir.Constant(TRUTHS, [0] * LANES)
        for i in range(CHUNK // LANES):
            logit = simd.load(builder, simd.at(builder, arguments[0], 4 * LANES * i), FLOATS)
            peaks[i % _NUM_PEAKS] = simd.maximum(builder, peaks[i % _NUM_PEAKS], logit)
            is_nan = builder.or_(is_nan, builder.fcmp_unordered("uno", logit, logit))
        while len(peaks) > 1:
            peaks = [simd.maximum(builder, *pair) for pair in zip(peaks[::2], peaks[1::2], strict=True)]
        holds_nan = builder.icmp_unsigned("!=", builder.bitcast(is_nan, I16), I16(0))
        return builder.select(holds_nan, F32(float("nan")), simd.lanes_max(builder, peaks[0]))

    return types.float32(types.uint64), generate


@intrinsic
def _weigh(typing_context: Any, logits, top, inverse, total, peak, weights):  # type: ignore[no-untyped-def]
    """e^((logit - top) · inverse) of one chunk: its sum, its greatest, and all of it, each by address."""

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


@compiled()
def num_chunks(vocab_size):  # type: ignore[no-untyped-def]
    return (vocab_size + CHUNK - 1) // CHUNK


@compiled()
def chunk_at(logits, chunk, rest):  # type: ignore[no-untyped-def]
    """The address of one chunk; the last one, if it isn't whole, is copied to `rest` [CHUNK] and filled up there."""
    if (chunk + 1) * CHUNK <= logits.size:
        return np.uint64(logits.ctypes.data) + np.uint64(4 * CHUNK) * np.uint64(chunk)
    num_left = logits.size - chunk * CHUNK
    rest[:num_left] = logits[chunk * CHUNK :]
    rest[num_left:] = NOTHING
    return np.uint64(rest.ctypes.data)


@compiled()
def find_peaks(logits, rest, peaks):  # type: ignore[no-untyped-def]
    """peaks [num_chunks] = the largest logit of each chunk, NaN where there is one."""
    for chunk in range(peaks.size):
        peaks[chunk] = _peak(chunk_at(logits, chunk, rest))


@compiled()
def first_of(logits, peaks, top):  # type: ignore[no-untyped-def]
    """The first token whose logit is `top`, which is the largest of the peaks; 0 for NaN."""
    for chunk in range(peaks.size):
        if peaks[chunk] == top:
            for token in range(chunk * CHUNK, logits.size):
                if logits[token] == top:
                    return token
    return 0


@compiled()
def weigh_chunk(logits, chunk, rest, top, inverse, sums, heaviest, weights):  # type: ignore[no-untyped-def]
    """weights [CHUNK] = e^((logit - top) · inverse) of a chunk's tokens, 0 for what is behind the vocabulary's end; to
    place `chunk` of `sums` their sum, and of `heaviest` the greatest."""
    place = np.uint64(4) * np.uint64(chunk)
    sum_at, heaviest_at = np.uint64(sums.ctypes.data) + place, np.uint64(heaviest.ctypes.data) + place
    _weigh(chunk_at(logits, chunk, rest), top, inverse, sum_at, heaviest_at, np.uint64(weights.ctypes.data))


@cache
def compile_tops() -> Callable[..., None]:
    stamp = SOURCE_STAMP

    @compiled(cache=True)
    def find_tops(rows_at, row_bytes, vocab_size, tops, likeliest):  # type: ignore[no-untyped-def]
        """tops [n] = the largest logit of each row, NaN where there is one; likeliest [n] = the first that it is of."""
        _ = stamp
        rest, peaks = np.empty(CHUNK, np.float32), np.empty(num_chunks(vocab_size), np.float32)
        for row in range(tops.size):
            place = rows_at + np.uint64(row) * np.uint64(row_bytes)
            logits = carray(pointer(place), (vocab_size,), np.float32)
            find_peaks(logits, rest, peaks)
            top = peaks[0]
            for peak in peaks:
                if peak > top or np.isnan(peak):  # than which nothing is greater
                    top = peak
            tops[row], likeliest[row] = top, first_of(logits, peaks, top)

    return find_tops
