"""Attention of many tokens of one sequence over its paged context, by matrix tiles.

16 queries of one head at a time, over 128 tokens of context at a time: their scores, softmax with a running maximum
(Milakov and Gimelshein 2018), and the weighted values stay in the core's nearest cache, as in flash attention (Dao et
al. 2022). The heads of a group share the keys and values, which are woven into tiles from their blocks on the way.

Contexts are cut by position, and a row of a tile's product depends on its own query alone, so a token's result is the
same to the bit whatever is computed beside it here.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import literally, types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from . import amx, simd
from .amx import COLUMNS, ROW_BYTES, ROWS, TILE_BYTES
from .amx_layout import num_parts_of, row_address
from .simd import F32, FLOATS, I32, I64, LANES, SHORTS, compiled
from .work_sharing import items

BLOCK_SIZE = LANES
PIECE_BLOCKS = 8
PIECE_TOKENS = PIECE_BLOCKS * BLOCK_SIZE
SCORE_BYTES = 4 * PIECE_TOKENS  # of one query's scores
TOTALS_AT_ONCE = 4  # tiles that products are added up in
PAIR = ir.VectorType(simd.I16, 2 * LANES)  # of bfloat16 vectors
LEAST = -1e30  # below every score, and a number: the difference of two infinities would be NaN
UNSEEN = 2 * LEAST  # so that its weight is 0 even where nothing is seen


@intrinsic
def _fetch(typing_context: Any, head_dim, keys, values):  # type: ignore[no-untyped-def]
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
def _weave_keys(typing_context: Any, head_dim, keys, target):  # type: ignore[no-untyped-def]
    """One block's keys [D, 16] bfloat16 as tiles [D / 32]: features are rows, tokens columns."""
    if not simd.are_literal(head_dim):
        return None
    width = head_dim.literal_value

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, keys, target = arguments
        for pair in range(width // 2):
            both = simd.load(builder, simd.at(builder, keys, ROW_BYTES * pair), PAIR)
            simd.store(builder, amx.weave(builder, both, both, LANES), simd.at(builder, target, ROW_BYTES * pair))
        return context.get_dummy_value()

    return types.void(head_dim, types.uint64, types.uint64), generate


@intrinsic
def _weave_values(typing_context: Any, head_dim, values, num_tokens, target):  # type: ignore[no-untyped-def]
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
                simd.store(builder, amx.weave(builder, rows[0], rows[1], LANES), place)
        return context.get_dummy_value()

    return types.void(head_dim, *([types.uint64] * 3)), generate


@intrinsic
def _scores(typing_context: Any, head_dim, terms, queries, part_step, keys, num_quads, scores):  # type: ignore[no-untyped-def]
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


ALL, CAUSAL, WINDOWED = 0, 1, 2
"""What the queries of a tile see of a piece: all, what is up to themselves, or what is in their window too."""


@intrinsic
def _soften(  # type: ignore[no-untyped-def]
    typing_context: Any,
    head_dim,  # literal
    terms,  # literal
    sight,  # ALL, CAUSAL or WINDOWED, literal
    scores,  # address of float32 [16, PIECE_TOKENS], in powers of 2
    first_seen,  # token of the piece that the first row sees first; each further row one later
    num_seen,  # tokens of the piece that the first row sees; each further row one more
    tops,  # address of float32 [16], the largest scores so far
    sums,  # address of float32 [16, 16], lane by lane
    output,  # address of float32 [16, D]
    weights,  # address of tiles [PIECE_TOKENS / 32, parts]
):
    """Scores of 16 queries become weights 2^(score - top); what was added up before is scaled to the new tops."""
    if not simd.are_literal(head_dim, terms, sight):
        return None
    width, num_parts, sees = head_dim.literal_value, amx.parts(terms.literal_value), sight.literal_value
    step_bytes = num_parts * TILE_BYTES
    # Weights that are rounded to bfloat16 need no more digits.
    series = simd.SHORT_POWER_SERIES if num_parts == 1 else simd.POWER_SERIES

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        scores, first_seen, num_seen, tops, sums, output, weights = arguments[3:]
        first_seen, num_seen = builder.trunc(first_seen, I32), builder.trunc(num_seen, I32)
        with cgutils.for_range(builder, I64(ROWS)) as loop:
            row_scores = simd.at(builder, scores, builder.mul(loop.index, I64(SCORE_BYTES)))
            top_at = simd.at(builder, tops, builder.mul(loop.index, I64(4)))
            sums_at = simd.at(builder, sums, builder.mul(loop.index, I64(ROW_BYTES)))
            output_at = simd.at(builder, output, builder.mul(loop.index, I64(4 * width)))
            weights_at = simd.at(builder, weights, builder.mul(loop.index, I64(ROW_BYTES)))

            row_index = builder.trunc(loop.index, I32)
            first = simd.splat(builder, builder.add(first_seen, row_index))
            last = simd.splat(builder, builder.add(num_seen, row_index))
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
                place = simd.at(builder, weights_at, step_bytes * step)
                amx.store_row(builder, row[2 * step], row[2 * step + 1], place, num_parts)
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

    numbers = types.uint64, types.int64, types.int64, *([types.uint64] * 4)
    return types.void(head_dim, terms, sight, *numbers), generate


def _in_pairs(values: list[Any], join: Callable[[Any, Any], Any]) -> Any:
    """All values joined: neighbours first, so that little waits for each other, and always in this order."""
    while len(values) > 1:
        values = [join(values[i], values[i + 1]) for i in range(0, len(values), 2)]
    return values[0]


@intrinsic
def _store_rows(  # type: ignore[no-untyped-def]
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
def _add_values(typing_context: Any, head_dim, terms, weights, values, num_steps, output):  # type: ignore[no-untyped-def]
    """output float32 [16, D] += weights · values.

    weights: tiles [steps, parts]; values: tiles [steps, D / 16]; a step has 32 tokens.
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
                firsts_at = simd.at(builder, weights, builder.mul(loop.index, I64(num_parts * TILE_BYTES)))
                seconds_at = simd.at(builder, values, builder.mul(loop.index, I64(num_tiles * TILE_BYTES)))
                firsts = range(4, 4 + num_parts)
                for part, tile in enumerate(firsts):
                    amx.load_tile(builder, tile, simd.at(builder, firsts_at, part * TILE_BYTES))
                for total in range(num_here):
                    second = 6 + total % 2
                    amx.load_tile(builder, second, simd.at(builder, seconds_at, (start + total) * TILE_BYTES))
                    for first in reversed(firsts):
                        amx.multiply(builder, total, first, second)
            for total in range(num_here):
                amx.store_tile(builder, total, simd.at(builder, output_at, ROW_BYTES * total), I64(4 * width))
        return context.get_dummy_value()

    return types.void(head_dim, terms, *([types.uint64] * 4)), generate


def plan_chunks(
    counts: NDArray[np.int64],  # [S] tokens of each sequence
    num_kv_heads: int,
    num_threads: int,
) -> NDArray[np.int64]:  # [chunks, 2]: first row, number of rows
    """Cuts the sequences' rows into chunks that share their keys: of 32 where all threads find work, else of 16."""
    num_chunks = int((-(-counts // (2 * ROWS))).sum())
    chunk_rows = 2 * ROWS if num_chunks * num_kv_heads >= 2 * num_threads else ROWS
    firsts = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    chunks = [
        (start, min(chunk_rows, last - start))
        for first, last in zip(firsts[:-1].tolist(), firsts[1:].tolist(), strict=True)
        for start in range(first, last, chunk_rows)
    ]
    return np.array(chunks, np.int64).reshape(-1, 2)


@compiled()
def scratch_floats(group, head_dim):  # type: ignore[no-untyped-def]
    """How much memory a thread needs for `attend_chunks`."""
    num_tiles = 2 * group
    tile = TILE_BYTES // 4
    return (
        num_tiles * ROWS * (head_dim + 1 + LANES)  # outputs, tops, sums
        + PIECE_BLOCKS * (head_dim // COLUMNS) * tile  # keys
        + PIECE_BLOCKS // 2 * (head_dim // LANES) * tile  # values
        + ROWS * PIECE_TOKENS  # scores
        + PIECE_TOKENS // COLUMNS * 2 * tile  # weights
    )


@compiled()
def attend_chunks(  # type: ignore[no-untyped-def]
    head_dim,  # literal, as is the next
    terms,
    counters,
    stage,
    chunks,  # [chunks, 2] of plan_chunks
    group,  # query heads for each key head
    num_kv_heads,
    queries,  # address of bfloat16 [H, parts, at least M + 15, D], scaled by log2(e) / sqrt(D)
    query_rows,  # at least M + 15
    positions,  # [M] int64
    keys,  # address of the layer's keys in block 0
    values,
    block_stride,  # bytes
    block_tables,  # [S, max_blocks] int32
    table_rows,  # [M] int64
    window,  # tokens that a row sees, itself included; 0 for all
    scratch,  # of this thread, float32 [scratch_floats], on a cache line
    output,  # address of activations [M / 16, H D / 32, …]
):
    """softmax(Q K^T) V of every row over its context up to itself, shared among the threads."""
    literally(head_dim)
    literally(terms)
    num_parts = num_parts_of(terms)
    num_columns = group * num_kv_heads * head_dim
    key_steps, value_tiles = head_dim // COLUMNS, head_dim // LANES
    tile_bytes = np.uint64(TILE_BYTES)
    head_bytes = np.uint64(2 * head_dim * BLOCK_SIZE)
    most_tiles = 2 * group
    outputs_at = np.uint64(scratch.ctypes.data)
    keys_at = outputs_at + np.uint64(4 * most_tiles * ROWS * head_dim)
    values_at = keys_at + np.uint64(PIECE_BLOCKS * key_steps) * tile_bytes
    scores_at = values_at + np.uint64(PIECE_BLOCKS // 2 * value_tiles) * tile_bytes
    weights_at = scores_at + np.uint64(ROWS * SCORE_BYTES)
    sums_at = weights_at + np.uint64(PIECE_TOKENS // COLUMNS * num_parts) * tile_bytes
    tops_at = sums_at + np.uint64(most_tiles * ROWS * ROW_BYTES)
    outputs = scratch[: most_tiles * ROWS * head_dim].reshape(most_tiles, ROWS, head_dim)
    tops_start = np.int64(tops_at - outputs_at) // 4
    tops = scratch[tops_start : tops_start + most_tiles * ROWS]
    sums_start = np.int64(sums_at - outputs_at) // 4
    sums = scratch[sums_start : sums_start + most_tiles * ROWS * LANES].reshape(most_tiles, ROWS, LANES)
    output_bytes, query_bytes = np.uint64(ROWS * 4 * head_dim), np.uint64(2 * head_dim)
    part_step = np.uint64(query_rows) * query_bytes

    for item in items(counters, stage, chunks.shape[0] * num_kv_heads, 1):
        # The last chunks see most: they come first, so that threads end together.
        chunk, kv_head = chunks.shape[0] - 1 - item // num_kv_heads, item % num_kv_heads
        first_row, num_rows = chunks[chunk, 0], chunks[chunk, 1]
        num_row_tiles = (num_rows + ROWS - 1) // ROWS
        num_tiles = group * num_row_tiles
        first_position = positions[first_row]
        last_position = first_position + num_rows - 1
        block_ids = block_tables[table_rows[first_row]]
        last_block, head_offset = last_position // BLOCK_SIZE, np.uint64(kv_head) * head_bytes
        tops[:] = np.float32(LEAST)
        sums[:] = np.float32(0.0)
        outputs[:] = np.float32(0.0)

        first_seen = max(0, first_position + 1 - window) if window else 0
        for piece in range(first_seen // PIECE_TOKENS, last_position // PIECE_TOKENS + 1):
            piece_start = piece * PIECE_TOKENS
            first_block = piece * PIECE_BLOCKS
            num_blocks = min(PIECE_BLOCKS, last_block + 1 - first_block)
            for i in range(num_blocks):
                block_at = np.uint64(block_ids[first_block + i]) * block_stride + head_offset
                _weave_keys(head_dim, keys + block_at, keys_at + np.uint64(i * key_steps) * tile_bytes)
                target = values_at + np.uint64(i // 2 * value_tiles) * tile_bytes + np.uint64(i % 2 * (TILE_BYTES // 2))
                num_tokens = min(BLOCK_SIZE, last_position + 1 - (first_block + i) * BLOCK_SIZE)
                _weave_values(head_dim, values + block_at, np.uint64(num_tokens), target)
                following = np.uint64(block_ids[min(first_block + i + 1, last_block)]) * block_stride
                _fetch(head_dim, keys + following + head_offset, values + following + head_offset)
            if num_blocks % 2:
                target = values_at + np.uint64(num_blocks // 2 * value_tiles) * tile_bytes + np.uint64(TILE_BYTES // 2)
                _weave_values(head_dim, values, np.uint64(0), target)
            num_steps = np.uint64((num_blocks + 1) // 2)
            num_quads = np.uint64((num_blocks + 3) // 4)
            for tile in range(num_tiles):
                row_position = first_position + tile % num_row_tiles * ROWS
                num_seen = row_position + 1 - piece_start
                if num_seen + ROWS <= 0:
                    continue
                hidden = row_position + 1 - window - piece_start if window else -PIECE_TOKENS
                head = kv_head * group + tile // num_row_tiles
                first_query = first_row + tile % num_row_tiles * ROWS
                queries_at = queries + np.uint64(head * num_parts) * part_step + np.uint64(first_query) * query_bytes
                tile_tops = tops_at + np.uint64(4 * ROWS * tile)
                tile_sums = sums_at + np.uint64(ROWS * ROW_BYTES * tile)
                tile_output = outputs_at + np.uint64(tile) * output_bytes
                _scores(head_dim, terms, queries_at, part_step, keys_at, num_quads, scores_at)
                if hidden + ROWS > 0:
                    _soften(head_dim, terms, WINDOWED, scores_at, hidden, num_seen, tile_tops, tile_sums, tile_output,
                            weights_at)  # fmt: skip
                elif num_seen < PIECE_TOKENS:
                    _soften(head_dim, terms, CAUSAL, scores_at, hidden, num_seen, tile_tops, tile_sums, tile_output,
                            weights_at)  # fmt: skip
                else:
                    _soften(head_dim, terms, ALL, scores_at, hidden, num_seen, tile_tops, tile_sums, tile_output,
                            weights_at)  # fmt: skip
                _add_values(head_dim, terms, weights_at, values_at, num_steps, tile_output)

        for tile in range(num_tiles):
            head, row_tile = tile // num_row_tiles, tile % num_row_tiles
            column_step = np.uint64((kv_head * group + head) * key_steps * num_parts) * tile_bytes
            row = first_row + row_tile * ROWS
            num_here = min(ROWS, num_rows - row_tile * ROWS)
            done = 0
            while done < num_here:
                # A chunk may begin anywhere in a tile of activations, so its rows may end in the next one.
                num_rows_here = min(num_here - done, ROWS - (row + done) % ROWS)
                _store_rows(head_dim, terms, np.uint64(num_rows_here),
                            sums_at + np.uint64((tile * ROWS + done) * ROW_BYTES),
                            outputs_at + np.uint64(4 * (tile * ROWS + done) * head_dim),
                            row_address(terms, output, num_columns, row + done) + column_step)  # fmt: skip
                done += num_rows_here
