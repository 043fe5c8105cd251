"""The small matrix products that attention of a prompt's rows is made of, by vectors of bfloat16.

Keys and values of a few blocks are woven, two rows into one, so that one instruction adds up the products of two
numbers; they are multiplied with a few rows of queries or weights at a time, whose sums stay in registers.
"""

import math
from typing import Any

from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from . import simd
from .bfloat16 import PAIRS, dot, narrow_pair, weave
from .piece_attention import BLOCK_SIZE
from .simd import FLOATS, I32, I64, LANES, LOG2_E, SHORT_POWER_SERIES

ROWS_AT_ONCE = 6
VECTORS_AT_ONCE = 4
"""A product's sums, so many rows times so many vectors, fill the registers: each load serves several of them."""
WOVEN_BLOCKS = VECTORS_AT_ONCE  # whose keys or values are woven at once: they stay in a core's nearest cache
WOVEN_TOKENS = WOVEN_BLOCKS * BLOCK_SIZE
STRETCH_TOKENS = 1024
"""Whose scores are kept at once: merging costs as much as attending to some 20 tokens."""
SCORE_FLOATS = STRETCH_TOKENS + LANES  # of a query; a multiple of a page would put all queries into the same cache sets
SCORE_BYTES = 4 * SCORE_FLOATS


@intrinsic
def weave_keys(typing_context: Any, head_dim, source, target):  # type: ignore[no-untyped-def]
    """A block's keys [D, 16] bfloat16 → [D / 2, 16, 2]: each two features become one row."""
    if not simd.are_literal(head_dim):
        return None
    num_pairs = head_dim.literal_value // 2

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        source, target = arguments[1:]
        for pair in range(num_pairs):
            both = simd.load(builder, simd.at(builder, source, 64 * pair), PAIRS)
            simd.store(builder, weave(builder, both, both, LANES), simd.at(builder, target, 64 * pair))
        return context.get_dummy_value()

    return types.void(head_dim, types.uint64, types.uint64), generate


@intrinsic
def weave_values(typing_context: Any, head_dim, source, target):  # type: ignore[no-untyped-def]
    """A block's values [16, D] bfloat16 → [8, D, 2]: each two tokens become one row."""
    if not simd.are_literal(head_dim):
        return None
    width = head_dim.literal_value

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        source, target = arguments[1:]
        for pair in range(BLOCK_SIZE // 2):
            for vector in range(width // LANES):
                place = simd.at(builder, source, 4 * width * pair + 2 * LANES * vector)
                rows = [simd.load(builder, simd.at(builder, place, 2 * width * i), simd.SHORTS) for i in range(2)]
                woven = weave(builder, rows[0], rows[1], LANES)
                simd.store(builder, woven, simd.at(builder, target, 4 * width * pair + 64 * vector))
        return context.get_dummy_value()

    return types.void(head_dim, types.uint64, types.uint64), generate


def _multiply(
    builder: Any,
    first: Any,  # address of bfloat16 [ROWS_AT_ONCE, first_stride / 2]
    first_stride: int,  # bytes, as all of these
    second: Any,  # address of woven pairs
    second_stride: int,
    vector_step: int,  # from one vector of the second factor to the next
    num_vectors: int,
    num_pairs: int,
    output: Any,  # address of float32 [ROWS_AT_ONCE, output_stride / 4]
    output_stride: int,
    adds: bool,  # to what is there
) -> None:
    places = [
        [simd.at(builder, output, output_stride * row + 4 * LANES * vector) for vector in range(num_vectors)]
        for row in range(ROWS_AT_ONCE)
    ]
    totals = [[simd.variable(builder, simd.floats(0.0)) for _ in row] for row in places]
    for total_row, place_row in zip(totals, places, strict=True):
        for total, place in zip(total_row, place_row, strict=True):
            builder.store(simd.load(builder, place, FLOATS) if adds else simd.floats(0.0), total)
    with cgutils.for_range(builder, I64(num_pairs)) as loop:
        row_at = simd.at(builder, second, builder.mul(loop.index, I64(second_stride)))
        vectors = [simd.load(builder, simd.at(builder, row_at, vector_step * i), PAIRS) for i in range(num_vectors)]
        column_at = simd.at(builder, first, builder.mul(loop.index, I64(4)))
        for row in range(ROWS_AT_ONCE):
            pair = simd.load(builder, simd.at(builder, column_at, first_stride * row), I32)
            factor = builder.bitcast(simd.splat(builder, pair), PAIRS)
            for total, vector in zip(totals[row], vectors, strict=True):
                builder.store(dot(builder, builder.load(total), factor, vector), total)
    for total_row, place_row in zip(totals, places, strict=True):
        for total, place in zip(total_row, place_row, strict=True):
            simd.store(builder, builder.load(total), place)


@intrinsic
def score_rows(typing_context: Any, head_dim, queries, keys, scores):  # type: ignore[no-untyped-def]
    """scores [ROWS_AT_ONCE, SCORE_FLOATS] = queries [ROWS_AT_ONCE, D] bfloat16 · woven keys of WOVEN_BLOCKS blocks."""
    if not simd.are_literal(head_dim):
        return None
    width = head_dim.literal_value

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        queries, keys, scores = arguments[1:]
        _multiply(builder, queries, 2 * width, keys, 64, 2 * width * BLOCK_SIZE, WOVEN_BLOCKS, width // 2, scores,
                  SCORE_BYTES, adds=False)  # fmt: skip
        return context.get_dummy_value()

    return types.void(head_dim, *([types.uint64] * 3)), generate


def _vectors_of_values(head_dim: int) -> int:
    """How many vectors of a row's output are summed together: a divisor of those that it fills."""
    num_vectors = head_dim // LANES
    return max(count for count in range(1, VECTORS_AT_ONCE + 1) if num_vectors % count == 0)


@intrinsic
def weigh_rows(typing_context: Any, head_dim, weights, values, outputs):  # type: ignore[no-untyped-def]
    """outputs [ROWS_AT_ONCE, D] += weights [ROWS_AT_ONCE, 2 SCORE_FLOATS] bfloat16 · woven values of WOVEN_TOKENS."""
    if not simd.are_literal(head_dim):
        return None
    width = head_dim.literal_value
    num_vectors = _vectors_of_values(width)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        weights, values, outputs = arguments[1:]
        with cgutils.for_range(builder, I64(width // LANES // num_vectors)) as parts:
            offset = builder.mul(parts.index, I64(4 * LANES * num_vectors))
            _multiply(builder, weights, SCORE_BYTES, simd.at(builder, values, offset), 4 * width, 64, num_vectors,
                      WOVEN_TOKENS // 2, simd.at(builder, outputs, offset), 4 * width, adds=True)  # fmt: skip
        return context.get_dummy_value()

    return types.void(head_dim, *([types.uint64] * 3)), generate


@intrinsic
def soften(typing_context: Any, scores, num_blocks, part):  # type: ignore[no-untyped-def]
    """Scores of whole blocks become exp(score - largest) in bfloat16, in the first half of their memory; part[0] gets
    the largest, part[1] the sum. An odd block is followed by zeros."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        scores, num_blocks, part = arguments
        largest = simd.variable(builder, simd.floats(-math.inf))
        total = simd.variable(builder, simd.floats(0.0))
        with cgutils.for_range(builder, num_blocks) as loop:
            block = simd.load(builder, simd.at(builder, scores, builder.mul(loop.index, I64(4 * LANES))), FLOATS)
            builder.store(simd.maximum(builder, builder.load(largest), block), largest)
        top = simd.lanes_max(builder, builder.load(largest))
        tops = simd.splat(builder, top)

        def weights_at(place: Any) -> Any:
            below = builder.fsub(simd.load(builder, place, FLOATS), tops)
            below = builder.fmul(below, simd.floats(LOG2_E))
            weights = simd.power_of_2(builder, below, SHORT_POWER_SERIES)
            builder.store(builder.fadd(builder.load(total), weights), total)
            return weights

        half = builder.lshr(num_blocks, I64(1))
        with cgutils.for_range(builder, half) as loop:
            place = simd.at(builder, scores, builder.mul(loop.index, I64(8 * LANES)))
            pair = narrow_pair(builder, weights_at(place), weights_at(simd.at(builder, place, 4 * LANES)))
            simd.store(builder, pair, simd.at(builder, scores, builder.mul(loop.index, I64(4 * LANES))))
        with builder.if_then(builder.icmp_unsigned("!=", builder.shl(half, I64(1)), num_blocks)):
            place = simd.at(builder, scores, builder.mul(half, I64(8 * LANES)))
            pair = narrow_pair(builder, weights_at(place), simd.floats(0.0))
            simd.store(builder, pair, simd.at(builder, scores, builder.mul(half, I64(4 * LANES))))
        simd.store(builder, top, part)
        simd.store(builder, simd.lanes_sum(builder, builder.load(total)), simd.at(builder, part, 4))
        return context.get_dummy_value()

    return types.void(*([types.uint64] * 3)), generate
