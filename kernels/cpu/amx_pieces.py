"""One piece of context by matrix tiles: keys and values woven into tiles, scores, softmax, weighted values.

16 queries of one head at a time, over 128 tokens of context at a time, with a running maximum (Milakov and Gimelshein
2018): all of it stays in the core's nearest cache, as in flash attention (Dao et al. 2022). Who asks what of which
context is decided elsewhere: amx_attention.py, amx_prefix.py.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import literally, types
from numba.core import cgutils
from numba.extending import intrinsic

from . import amx, simd
from .amx import COLUMNS, ROW_BYTES, TILE_BYTES
from .bfloat16 import weave
from .simd import F32, FLOATS, I32, I64, LANES, SHORTS, compiled

BLOCK_SIZE = LANES
PIECE_BLOCKS = 8
PIECE_TOKENS = PIECE_BLOCKS * BLOCK_SIZE
SCORE_BYTES = 4 * PIECE_TOKENS  # of one query's scores
TOTALS_AT_ONCE = 4  # tiles that products are added up in
PAIR = ir.VectorType(simd.I16, 2 * LANES)  # of bfloat16 vectors
LEAST = -1e30  # below every score, and a number: the difference of two infinities would be NaN
UNSEEN = 2 * LEAST  # so that its weight is 0 even where nothing is seen


@intrinsic
def fetch(typing_context: Any, head_dim, keys, values):  # type: ignore[no-untyped-def]
    """Has one head's keys and values of a block fetched meanwhile."""
    if not simd.are_literal(head_dim):
        return None
    num_bytes = 2 * head_dim.literal_value * BLOCK_SIZE

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        for start in arguments[1:]:
            for line in range(0, num_bytes, ROW_BYTES):
                simd.prefetch(builder, simd.at(builder, start, line))
        return context.get_dummy_value()

    return types.void(head_dim, types.uint64, types.uint64), generate


@intrinsic
def weave_keys(typing_context: Any, head_dim, keys, target):  # type: ignore[no-untyped-def]
    """One block's keys [D, 16] bfloat16 as tiles [D / 32]: features are rows, tokens columns."""
    if not simd.are_literal(head_dim):
        return None
    width = head_dim.literal_value

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, keys, target = arguments
        for pair in range(width // 2):
            both = simd.load(builder, simd.at(builder, keys, ROW_BYTES * pair), PAIR)
            simd.store(builder, weave(builder, both, both, LANES), simd.at(builder, target, ROW_BYTES * pair))
        return context.get_dummy_value()

    return types.void(head_dim, types.uint64, types.uint64), generate


@intrinsic
def weave_values(typing_context: Any, head_dim, values, num_tokens, target):  # type: ignore[no-untyped-def]
    """One block's values [16, D] bfloat16 as half of tiles [D / 16]: tokens are rows, features columns.

    Tokens from `num_tokens` on count as zeros and are never read: their slots may hold NaN.
    """
    if not simd.are_literal(head_dim):
        return None
    width = head_dim.literal_value

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, values, num_tokens, target = arguments
        nothing = ir.Constant(SHORTS, [0] * LANES)
        for pair in range(BLOCK_SIZE // 2):
            is_there = [builder.icmp_unsigned("<", I64(2 * pair + i), num_tokens) for i in range(2)]
            for tile in range(width // LANES):
                rows = []
                for i in range(2):
                    place = simd.at(builder, values, 2 * (width * (2 * pair + i) + LANES * tile))
                    # A token that isn't there is read from the block's own memory, and dropped.
                    rows.append(builder.select(is_there[i], simd.load(builder, place, SHORTS), nothing))
                place = simd.at(builder, target, TILE_BYTES * tile + ROW_BYTES * pair)
                simd.store(builder, weave(builder, rows[0], rows[1], LANES), place)
        return context.get_dummy_value()

    return types.void(head_dim, *([types.uint64] * 3)), generate


@compiled()
def weave_piece(  # type: ignore[no-untyped-def]
    head_dim,  # literal
    keys,  # address of the layer's keys in block 0, of one head
    values,
    block_stride,  # bytes
    block_ids,  # [max_blocks] int32
    first_block,
    num_blocks,
    last_token,  # of the context, in the last block; what is behind it is never read
    keys_at,  # address of tiles [PIECE_BLOCKS, D / 32]
    values_at,  # address of tiles [PIECE_BLOCKS / 2, D / 16]
):
    """Keys and values of one head's next blocks as tiles; an odd last one is followed by values of 0."""
    literally(head_dim)
    key_bytes = np.uint64(head_dim // COLUMNS * TILE_BYTES)
    value_bytes, half = np.uint64(head_dim // LANES * TILE_BYTES), np.uint64(TILE_BYTES // 2)
    for i in range(num_blocks):
        block_at = np.uint64(block_ids[first_block + i]) * block_stride
        weave_keys(head_dim, keys + block_at, keys_at + np.uint64(i) * key_bytes)
        num_tokens = min(BLOCK_SIZE, last_token + 1 - (first_block + i) * BLOCK_SIZE)
        weave_values(head_dim, values + block_at, np.uint64(num_tokens),
                     values_at + np.uint64(i // 2) * value_bytes + np.uint64(i % 2) * half)  # fmt: skip
    if num_blocks % 2:
        weave_values(head_dim, values, np.uint64(0), values_at + np.uint64(num_blocks // 2) * value_bytes + half)


@intrinsic
def tile_scores(typing_context: Any, head_dim, terms, queries, part_step, keys, num_quads, scores):  # type: ignore[no-untyped-def]
    """scores float32 [16, PIECE_TOKENS] = queries · keys, four blocks at a time.

    queries: bfloat16 [16, D], the low parts `part_step` bytes on; keys: tiles [blocks, D / 32].
    """
    if not simd.are_literal(head_dim, terms):
        return None
    width, num_parts = head_dim.literal_value, amx.parts(terms.literal_value)
    num_steps = width // COLUMNS
    key_bytes = num_steps * TILE_BYTES

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        queries, part_step, keys, num_quads, scores = arguments[2:]
        with cgutils.for_range(builder, num_quads) as loop:
            blocks = simd.at(builder, keys, builder.mul(loop.index, I64(TOTALS_AT_ONCE * key_bytes)))
            for total in range(TOTALS_AT_ONCE):
                amx.zero(builder, total)
            for step in range(num_steps):
                firsts = range(4, 4 + num_parts)
                for part, tile in enumerate(firsts):
                    place = simd.at(builder, queries, builder.mul(part_step, I64(part)))
                    amx.load_tile(builder, tile, simd.at(builder, place, step * ROW_BYTES), I64(2 * width))
                for total in range(TOTALS_AT_ONCE):
                    second = 6 + total % 2
                    amx.load_tile(builder, second, simd.at(builder, blocks, total * key_bytes + step * TILE_BYTES))
                    for first in reversed(firsts):
                        amx.multiply(builder, total, first, second)
            target = simd.at(builder, scores, builder.mul(loop.index, I64(TOTALS_AT_ONCE * ROW_BYTES)))
            for total in range(TOTALS_AT_ONCE):
                amx.store_tile(builder, total, simd.at(builder, target, ROW_BYTES * total), I64(SCORE_BYTES))
        return context.get_dummy_value()

    return types.void(head_dim, terms, *([types.uint64] * 5)), generate


ALL, CAUSAL, WINDOWED, CUT = 0, 1, 2, 3
"""What the queries of a tile see of a piece: all; what is up to themselves; what is in their window too; or, each row
the same, its first tokens."""


@intrinsic
def soften(  # type: ignore[no-untyped-def]
    typing_context: Any,
    head_dim,  # literal
    terms,  # literal
    sight,  # ALL, CAUSAL, WINDOWED or CUT, literal
    fetches,  # literal: has 1 / fetches of a head's keys or values of a block fetched for each row meanwhile; 0: none
    ahead,  # address of uint64 [16], where that begins
    num_rows,  # of the 16 that are wanted; what the others come to is no number to look at
    scores,  # address of float32 [16, PIECE_TOKENS], in powers of 2; the weights take their place
    first_seen,  # token of the piece that the first row sees first; each further row one later
    num_seen,  # tokens of the piece that the first row sees; each further row one more, or with CUT the same
    tops,  # address of float32 [16], the largest scores so far
    sums,  # address of float32 [16, 16], lane by lane
    output,  # address of float32 [16, D]
):
    """Scores of 16 queries become weights 2^(score - top); what was added up before is scaled to the new tops.

    A row's weights, bfloat16 [PIECE_TOKENS / 32, parts, 32], lie where its scores lay: memory of their own would not
    fit a core's nearest cache beside the tiles.
    """
    if not simd.are_literal(head_dim, terms, sight, fetches):
        return None
    width, num_parts, sees = head_dim.literal_value, amx.parts(terms.literal_value), sight.literal_value
    # Weights that are rounded to bfloat16 need no more digits.
    series = simd.SHORT_POWER_SERIES if num_parts == 1 else simd.POWER_SERIES

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        ahead, num_rows, scores, first_seen, num_seen, tops, sums, output = arguments[4:]
        first_seen, num_seen = builder.trunc(first_seen, I32), builder.trunc(num_seen, I32)
        with cgutils.for_range(builder, num_rows) as loop:
            row_scores = simd.at(builder, scores, builder.mul(loop.index, I64(SCORE_BYTES)))
            top_at = simd.at(builder, tops, builder.mul(loop.index, I64(4)))
            sums_at = simd.at(builder, sums, builder.mul(loop.index, I64(ROW_BYTES)))
            output_at = simd.at(builder, output, builder.mul(loop.index, I64(4 * width)))

            if fetches.literal_value:
                following = simd.load(builder, simd.at(builder, ahead, builder.mul(loop.index, I64(8))), I64)
                for line in range(0, 2 * width * BLOCK_SIZE // fetches.literal_value, ROW_BYTES):
                    simd.prefetch(builder, simd.at(builder, following, line))
            row_index = builder.trunc(loop.index, I32)
            first = simd.splat(builder, builder.add(first_seen, row_index))
            last = simd.splat(builder, num_seen if sees == CUT else builder.add(num_seen, row_index))
            row = []
            for block in range(PIECE_BLOCKS):
                score = simd.load(builder, simd.at(builder, row_scores, ROW_BYTES * block), FLOATS)
                tokens = ir.Constant(simd.INTS, list(range(LANES * block, LANES * (block + 1))))
                if sees != ALL:
                    is_seen = builder.icmp_signed("<", tokens, last)
                    score = builder.select(is_seen, score, simd.floats(UNSEEN))
                if sees == WINDOWED:
                    is_seen = builder.icmp_signed(">=", tokens, first)
                    score = builder.select(is_seen, score, simd.floats(UNSEEN))
                row.append(score)

            before = simd.load(builder, top_at, F32)
            here = simd.lanes_max(builder, _in_pairs(row, lambda one, other: simd.maximum(builder, one, other)))
            top = builder.select(builder.fcmp_ordered(">", before, here), before, here)
            simd.store(builder, top, top_at)
            top_vector = simd.splat(builder, top)
            row = [simd.power_of_2(builder, builder.fsub(score, top_vector), series) for score in row]
            for step in range(PIECE_BLOCKS // 2):
                place = simd.at(builder, row_scores, num_parts * ROW_BYTES * step)
                amx.store_row(builder, row[2 * step], row[2 * step + 1], place, num_parts, I64(ROW_BYTES))
            total = _in_pairs(row, builder.fadd)

            earlier = simd.load(builder, sums_at, FLOATS)
            with builder.if_else(builder.fcmp_unordered("!=", before, top)) as (rises, stays):
                with rises:
                    factor = simd.power_of_2(builder, simd.splat(builder, builder.fsub(before, top)))
                    simd.store(builder, simd.fma(builder, earlier, factor, total), sums_at)
                    for start in range(0, 4 * width, ROW_BYTES):
                        place = simd.at(builder, output_at, start)
                        simd.store(builder, builder.fmul(simd.load(builder, place, FLOATS), factor), place)
                with stays:
                    simd.store(builder, builder.fadd(earlier, total), sums_at)
        return context.get_dummy_value()

    numbers = *([types.uint64] * 3), types.int64, types.int64, *([types.uint64] * 3)
    return types.void(head_dim, terms, sight, fetches, *numbers), generate


def _in_pairs(values: list[Any], join: Callable[[Any, Any], Any]) -> Any:
    """All values joined: neighbours first, so that little waits for each other, and always in this order."""
    while len(values) > 1:
        values = [join(values[i], values[i + 1]) for i in range(0, len(values), 2)]
    return values[0]


@intrinsic
def store_rows(  # type: ignore[no-untyped-def]
    typing_context: Any, head_dim, terms, num_rows, sums, output, target
):
    """Rows of output float32 [D], each divided by its sum [16 lanes], as rows of activations from `target` on."""
    if not simd.are_literal(head_dim, terms):
        return None
    width, num_parts = head_dim.literal_value, amx.parts(terms.literal_value)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        num_rows, sums, output, target = arguments[2:]
        with cgutils.for_range(builder, num_rows) as loop:
            lanes = simd.load(builder, simd.at(builder, sums, builder.mul(loop.index, I64(ROW_BYTES))), FLOATS)
            factor = simd.splat(builder, builder.fdiv(F32(1.0), simd.lanes_sum(builder, lanes)))
            source = simd.at(builder, output, builder.mul(loop.index, I64(4 * width)))
            place = simd.at(builder, target, builder.mul(loop.index, I64(ROW_BYTES)))
            for step in range(width // COLUMNS):
                halves = [
                    simd.load(builder, simd.at(builder, source, 4 * (COLUMNS * step + LANES * half)), FLOATS)
                    for half in range(2)
                ]
                scaled = [builder.fmul(half, factor) for half in halves]
                amx.store_row(
                    builder, scaled[0], scaled[1], simd.at(builder, place, step * num_parts * TILE_BYTES), num_parts
                )
        return context.get_dummy_value()

    return types.void(head_dim, terms, *([types.uint64] * 4)), generate


@intrinsic
def add_values(typing_context: Any, head_dim, terms, weights, values, num_steps, output):  # type: ignore[no-untyped-def]
    """output float32 [16, D] += weights · values.

    weights: as `soften` leaves them; values: tiles [steps, D / 16]; a step has 32 tokens.
    """
    if not simd.are_literal(head_dim, terms):
        return None
    width, num_parts = head_dim.literal_value, amx.parts(terms.literal_value)
    num_tiles = width // LANES

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        weights, values, num_steps, output = arguments[2:]
        for start in range(0, num_tiles, TOTALS_AT_ONCE):
            num_here = min(TOTALS_AT_ONCE, num_tiles - start)
            output_at = simd.at(builder, output, ROW_BYTES * start)
            for total in range(num_here):
                amx.load_tile(builder, total, simd.at(builder, output_at, ROW_BYTES * total), I64(4 * width))
            with cgutils.for_range(builder, num_steps) as loop:
                firsts_at = simd.at(builder, weights, builder.mul(loop.index, I64(num_parts * ROW_BYTES)))
                seconds_at = simd.at(builder, values, builder.mul(loop.index, I64(num_tiles * TILE_BYTES)))
                firsts = range(4, 4 + num_parts)
                for part, tile in enumerate(firsts):
                    amx.load_tile(builder, tile, simd.at(builder, firsts_at, part * ROW_BYTES), I64(SCORE_BYTES))
                for total in range(num_here):
                    second = 6 + total % 2
                    amx.load_tile(builder, second, simd.at(builder, seconds_at, (start + total) * TILE_BYTES))
                    for first in reversed(firsts):
                        amx.multiply(builder, total, first, second)
            for total in range(num_here):
                amx.store_tile(builder, total, simd.at(builder, output_at, ROW_BYTES * total), I64(4 * width))
        return context.get_dummy_value()

    return types.void(head_dim, terms, *([types.uint64] * 4)), generate
