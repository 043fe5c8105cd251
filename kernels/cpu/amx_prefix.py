"""Attention of several rows over blocks that they share, by matrix tiles: keys and values are read once for all.

The queries of all rows that share a stretch of blocks, times the heads of a group, are the rows of tiles: 8 replies of
a model with 3 query heads for each key head fill one tile and a half, where one reply alone would waste most of one.
What the stretch gives each of them becomes a part (piece_attention.py) that is merged with the rest of its context.
"""

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import literally, types
from numba.extending import intrinsic

from ..shared_run import SharedRun
from . import amx, simd
from .amx import COLUMNS, ROW_BYTES, ROWS, TILE_BYTES
from .amx_pieces import (
    ALL,
    BLOCK_SIZE,
    CUT,
    LEAST,
    PAIR,
    PIECE_BLOCKS,
    PIECE_TOKENS,
    add_values,
    fetch,
    soften,
    tile_scores,
    weave_keys,
    weave_values,
)
from .piece_attention import PART_HEADER
from .simd import F32, FLOATS, LANES, LOG2_E, compiled
from .work_sharing import items

LN_2 = math.log(2)  # scores are powers of 2 here, and of e in a part
WEIGHT_TERMS = 1
"""Weights of values are rounded to bfloat16, as the values in the cache are; queries are not (amx.py)."""
MOST_QUERIES = 64
"""Of one stretch, that are worked on together: their outputs stay in a core's cache."""
BLOCKS_AHEAD = 3  # far enough that a block is there when it is wanted
MOST_PIECES = 8
"""Of a segment: more gain nothing, and what is cut finely is shared evenly."""


def most_members(group: int) -> int:
    """How many rows may share one stretch at once."""
    return max(1, MOST_QUERIES // group)


def segment_blocks(runs: tuple[SharedRun, ...], num_threads: int) -> int:
    """How many blocks one thread takes at once: its share of all, up to a bound. Each segment leaves parts that must be
    merged, and begins with blocks that nobody has fetched ahead."""
    share = -(-sum(run.num_blocks for run in runs) // num_threads)
    return PIECE_BLOCKS * max(1, min(MOST_PIECES, -(-share // PIECE_BLOCKS)))


@intrinsic
def _take_query(typing_context: Any, head_dim, terms, source, target, part_step, top, sums, output):  # type: ignore[no-untyped-def]
    """One head's query float32 [D] as a row of bfloat16, in powers of 2; its top, sums and output as they begin."""
    if not simd.are_literal(head_dim, terms):
        return None
    width, num_parts = head_dim.literal_value, amx.parts(terms.literal_value)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        source, target, part_step, top, sums, output = arguments[2:]
        for start in range(0, width, COLUMNS):
            first, second = (
                builder.fmul(
                    simd.load(builder, simd.at(builder, source, 4 * (start + LANES * half)), FLOATS),
                    simd.floats(LOG2_E),
                )
                for half in range(2)
            )
            amx.store_row(builder, first, second, simd.at(builder, target, 2 * start), num_parts, part_step)
        simd.store(builder, F32(LEAST), top)
        for place in (sums, *(simd.at(builder, output, 4 * start) for start in range(0, width, LANES))):
            simd.store(builder, simd.floats(0.0), place)
        return context.get_dummy_value()

    return types.void(head_dim, terms, *([types.uint64] * 6)), generate


@intrinsic
def _leave_part(typing_context: Any, head_dim, top, sums, output, part):  # type: ignore[no-untyped-def]
    """A row's top, sums and output as a part; features are put in order (`_weave_values`)."""
    if not simd.are_literal(head_dim):
        return None
    width = head_dim.literal_value

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, top, sums, output, part = arguments
        simd.store(builder, builder.fmul(simd.load(builder, top, F32), F32(LN_2)), part)
        total = simd.lanes_sum(builder, simd.load(builder, sums, FLOATS))
        simd.store(builder, total, simd.at(builder, part, 4))
        target = simd.at(builder, part, 4 * PART_HEADER)
        for start in range(0, width, COLUMNS):
            low, high = (
                simd.load(builder, simd.at(builder, output, 4 * (start + LANES * half)), FLOATS) for half in range(2)
            )
            for half in range(2):
                places = [
                    lane // 8 * 4 + lane % 4 + LANES * (lane % 8 // 4)
                    for lane in range(LANES * half, LANES * (half + 1))
                ]
                in_order = builder.shuffle_vector(low, high, ir.Constant(simd.INTS, places))
                simd.store(builder, in_order, simd.at(builder, target, 4 * (start + LANES * half)))
        return context.get_dummy_value()

    return types.void(head_dim, *([types.uint64] * 4)), generate


@intrinsic
def _weave_values(typing_context: Any, head_dim, values, target):  # type: ignore[no-untyped-def]
    """A full block's values [16, D] bfloat16 as half of tiles [D / 16]: tokens are rows, features columns.

    Of 32 features the first tile gets four in turn, the second the next four: so each is woven by one instruction.
    """
    if not simd.are_literal(head_dim):
        return None
    width = head_dim.literal_value

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, values, target = arguments
        for pair in range(BLOCK_SIZE // 2):
            for start in range(0, width, COLUMNS):
                even, odd = (
                    simd.load(builder, simd.at(builder, values, 2 * (width * (2 * pair + i) + start)), PAIR)
                    for i in range(2)
                )
                for half in range(2):
                    turns = [
                        8 * (lane // 8) + 4 * half + lane % 8 // 2 + COLUMNS * (lane % 2) for lane in range(COLUMNS)
                    ]
                    woven = builder.shuffle_vector(even, odd, ir.Constant(ir.VectorType(simd.I32, COLUMNS), turns))
                    tile = start // LANES + half
                    simd.store(builder, woven, simd.at(builder, target, TILE_BYTES * tile + ROW_BYTES * pair))
        return context.get_dummy_value()

    return types.void(head_dim, types.uint64, types.uint64), generate


@compiled()
def prefix_scratch(group, num_kv_heads, head_dim, is_used):  # type: ignore[no-untyped-def]
    """What a thread needs for `attend_shared`: queries, outputs, tops, sums, tiles of all heads' keys and then of their
    values, scores."""
    num_kept = (max(MOST_QUERIES, group) + ROWS - 1) // ROWS * ROWS if is_used else 0
    num_rows = num_kv_heads * num_kept
    num_blocks, tile = PIECE_BLOCKS if is_used else 0, TILE_BYTES // 4
    return (
        amx.aligned_floats(num_rows * head_dim),  # bfloat16, high parts and low parts
        amx.aligned_floats(num_rows * head_dim).reshape(num_rows, head_dim),
        amx.aligned_floats(num_rows),
        amx.aligned_floats(num_rows * LANES).reshape(num_rows, LANES),
        amx.aligned_floats(2 * num_kv_heads * num_blocks * (head_dim // COLUMNS) * tile),
        amx.aligned_floats(num_kept * num_blocks * BLOCK_SIZE),
    )


@compiled()
def attend_shared(  # type: ignore[no-untyped-def]
    head_dim,  # literal, as is the next
    terms,
    counters,
    stage,
    segments,  # [segments, 4] int64: first block, end, first member, number of members
    members,  # [members, 2] int64: a row, and its part of this segment
    group,  # query heads for each key head
    num_kv_heads,
    query,  # [M, at least H · D] float32, scaled
    keys,  # address of the layer's keys in block 0
    values,
    block_stride,  # bytes
    block_tables,  # [S, max_blocks] int32
    table_rows,  # [M] int64
    scratch,  # prefix_scratch of this thread
    parts,  # [parts, H, PART_HEADER + D] float32
):
    """Parts of the members' attention over the segments' blocks, shared among the threads."""
    literally(head_dim)
    literally(terms)
    queries, outputs, tops, sums, woven, scores = scratch
    head_bytes, query_bytes = np.uint64(2 * head_dim * BLOCK_SIZE), np.uint64(2 * head_dim)
    queries_at, part_step = np.uint64(queries.ctypes.data), np.uint64(outputs.shape[0]) * query_bytes
    outputs_at, output_bytes = np.uint64(outputs.ctypes.data), np.uint64(4 * head_dim)
    tops_at, sums_at = np.uint64(tops.ctypes.data), np.uint64(sums.ctypes.data)
    keys_at, score_bytes = np.uint64(woven.ctypes.data), np.uint64(4 * PIECE_TOKENS)
    scores_at = np.uint64(scores.ctypes.data)
    key_bytes, value_bytes = np.uint64(head_dim // COLUMNS * TILE_BYTES), np.uint64(head_dim // LANES * TILE_BYTES)
    query_at, row_bytes = np.uint64(query.ctypes.data), np.uint64(query.strides[0])
    half_tile, nowhere = np.uint64(TILE_BYTES // 2), np.uint64(0)
    piece_bytes = np.uint64(PIECE_BLOCKS) * key_bytes  # of one head, as many of keys as of values
    values_at = keys_at + np.uint64(num_kv_heads) * piece_bytes
    parts_at, head_step = np.uint64(parts.ctypes.data), np.uint64(parts.strides[1])

    num_kept = np.uint64(outputs.shape[0] // num_kv_heads)  # of one key head's queries
    for item in items(counters, stage, segments.shape[0], 1):
        first_block, end_block, first_member = segments[item, 0], segments[item, 1], segments[item, 2]
        num_rows = segments[item, 3] * group
        for kv_head in range(num_kv_heads):
            for i in range(num_rows):
                row, head = members[first_member + i // group, 0], np.uint64(kv_head * group + i % group)
                place = np.uint64(kv_head) * num_kept + np.uint64(i)
                _take_query(head_dim, terms, query_at + np.uint64(row) * row_bytes + head * output_bytes,
                            queries_at + place * query_bytes, part_step, tops_at + np.uint64(4) * place,
                            sums_at + np.uint64(ROW_BYTES) * place, outputs_at + place * output_bytes)  # fmt: skip

        block_ids = block_tables[table_rows[members[first_member, 0]]]
        for block in range(first_block, end_block, PIECE_BLOCKS):
            num_blocks = min(PIECE_BLOCKS, end_block - block)
            num_steps, num_quads = np.uint64((num_blocks + 1) // 2), np.uint64((num_blocks + 3) // 4)
            # Blocks are read from front to back, all heads of each: so a processor foresees most of what comes.
            for i in range(num_blocks):
                block_at, step = np.uint64(block_ids[block + i]) * block_stride, np.uint64(i)
                ahead_at = np.uint64(block_ids[min(block + i + BLOCKS_AHEAD, end_block - 1)]) * block_stride
                for kv_head in range(num_kv_heads):
                    here = np.uint64(kv_head) * head_bytes
                    fetch(head_dim, keys + ahead_at + here, values + ahead_at + here)
                    weave_keys(head_dim, keys + block_at + here,
                               keys_at + np.uint64(kv_head) * piece_bytes + step * key_bytes)  # fmt: skip
                for kv_head in range(num_kv_heads):
                    target = values_at + np.uint64(kv_head) * piece_bytes + (step // 2) * value_bytes
                    _weave_values(head_dim, values + block_at + np.uint64(kv_head) * head_bytes,
                                  target + (step % 2) * half_tile)  # fmt: skip
            if num_blocks % 2:
                for kv_head in range(num_kv_heads):
                    target = values_at + np.uint64(kv_head) * piece_bytes + np.uint64(num_blocks // 2) * value_bytes
                    weave_values(head_dim, values, np.uint64(0), target + half_tile)
            for kv_head in range(num_kv_heads):
                kept, woven_head = np.uint64(kv_head) * num_kept, np.uint64(kv_head) * piece_bytes
                for first in range(0, num_rows, ROWS):
                    start = np.uint64(first)
                    tile_scores(head_dim, terms, queries_at + (kept + start) * query_bytes, part_step,
                                keys_at + woven_head, num_quads, scores_at + start * score_bytes)  # fmt: skip
                for first in range(0, num_rows, ROWS):
                    start, num_here = np.uint64(first), np.uint64(min(ROWS, num_rows - first))
                    output_at = outputs_at + (kept + start) * output_bytes
                    tile_scores_at = scores_at + start * score_bytes
                    tile_tops = tops_at + np.uint64(4) * (kept + start)
                    tile_sums = sums_at + np.uint64(ROW_BYTES) * (kept + start)
                    if num_blocks == PIECE_BLOCKS:
                        soften(head_dim, WEIGHT_TERMS, ALL, 0, nowhere, num_here, tile_scores_at, 0, PIECE_TOKENS,
                               tile_tops, tile_sums, output_at)  # fmt: skip
                    else:
                        soften(head_dim, WEIGHT_TERMS, CUT, 0, nowhere, num_here, tile_scores_at, 0,
                               num_blocks * BLOCK_SIZE, tile_tops, tile_sums, output_at)  # fmt: skip
                    add_values(head_dim, WEIGHT_TERMS, tile_scores_at, values_at + woven_head, num_steps, output_at)

        for kv_head in range(num_kv_heads):
            for i in range(num_rows):
                part, head = members[first_member + i // group, 1], kv_head * group + i % group
                place = np.uint64(kv_head) * num_kept + np.uint64(i)
                _leave_part(head_dim, tops_at + np.uint64(4) * place, sums_at + np.uint64(ROW_BYTES) * place,
                            outputs_at + place * output_bytes,
                            parts_at + np.uint64(part * parts.shape[1] + head) * head_step)  # fmt: skip


@compiled()
def attend_alone(  # type: ignore[no-untyped-def]
    head_dim, terms, counters, stage, segments, members, group, num_kv_heads, query, keys, values, block_stride,
    block_tables, table_rows, scratch, parts
):  # fmt: skip
    """`attend_shared` where nothing else uses tiles: they are ready only meanwhile."""
    literally(head_dim)
    literally(terms)
    shapes = amx.tile_shapes_compiled()
    amx.configure(np.uint64(shapes.ctypes.data))
    attend_shared(head_dim, terms, counters, stage, segments, members, group, num_kv_heads, query, keys, values,
                  block_stride, block_tables, table_rows, scratch, parts)  # fmt: skip
    amx.release()
    return shapes  # kept until here, for only its address was used
