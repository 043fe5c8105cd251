"""Attention of several rows over pieces of context that they share, by vectors: to the bit what each row alone gives.

A piece (piece_attention.py) is the same stretch of tokens for every row, and what a row makes of it depends on nothing
else. So rows that share all blocks of a piece may compute it together: keys and values are read and widened once, a few
blocks at a time, and multiplied with all rows' queries as a small matrix product, whose sums stay in registers. Each
sum is made of the same numbers in the same order as for one row, and so is the softmax: nothing is rounded otherwise.
What is less than a whole piece is left to each row.
"""

import itertools
from typing import Any

import numpy as np
from llvmlite import ir
from numba import literally, types
from numba.core import cgutils
from numba.extending import intrinsic

from . import simd
from .amx import aligned_floats
from .amx_prefix import MOST_QUERIES
from .piece_attention import (
    BLOCK_SIZE,
    PART_HEADER,
    PIECE_BLOCKS,
    PIECE_TOKENS,
    REGISTER_ACCUMULATORS,
    num_chains,
    softmax,
)
from .rows import narrow, widen
from .simd import CACHE_LINE, F32, FLOAT32, I64, ITEM_SIZE, LANES, REGISTER_LANES, compiled
from .work_sharing import items

ROWS_AT_ONCE = 6
MOST_VECTORS = REGISTER_ACCUMULATORS // ROWS_AT_ONCE
"""A product's sums, so many rows times so many vectors, fill the registers: each load serves several of them."""
CHUNK_BLOCKS = 4
CHUNK_TOKENS = CHUNK_BLOCKS * BLOCK_SIZE
"""Whose keys or values are widened at once: they stay in a core's nearest cache."""
SCORE_TOKENS = MOST_VECTORS * REGISTER_LANES
"""Whose scores are summed together: whole blocks, or a part of one."""
MOST_ROWS = -(-MOST_QUERIES // ROWS_AT_ONCE) * ROWS_AT_ONCE

assert CHUNK_TOKENS % SCORE_TOKENS == 0


def vectors_of_values(head_dim: int) -> int:
    """How many vectors of a row's output are summed together: a divisor of those that it fills."""
    num_vectors = head_dim // REGISTER_LANES
    return max(count for count in range(1, MOST_VECTORS + 1) if num_vectors % count == 0)


def _multiply(
    builder: Any,
    first: Any,  # address of float32 [ROWS_AT_ONCE, first_stride / 4]
    first_stride: int,  # bytes, as all of these
    second: Any,  # address of float32 [num_steps, second_stride / 4]
    second_stride: int,
    vector_step: int,  # from one vector of the second factor to the next
    num_vectors: int,
    steps: list[range],  # columns of the first factor, and rows of the second, of each chain of additions
    output: Any,  # address of float32 [ROWS_AT_ONCE, output_stride / 4]
    output_stride: int,
    adds: bool,  # to what is there
) -> None:
    """The product of a few rows: chain after chain, each summed in the order of its steps."""
    lanes = REGISTER_LANES
    kind, zeros = ir.VectorType(F32, lanes), simd.floats(0.0, lanes)
    places = [
        [simd.at(builder, output, output_stride * row + 4 * lanes * vector) for vector in range(num_vectors)]
        for row in range(ROWS_AT_ONCE)
    ]
    totals = [[simd.variable(builder, zeros) for _ in range(num_vectors)] for _ in range(ROWS_AT_ONCE)]
    pairs = list(zip(itertools.chain.from_iterable(totals), itertools.chain.from_iterable(places), strict=True))
    for number, chain in enumerate(steps):
        for total, place in pairs:
            builder.store(simd.load(builder, place, kind) if adds else zeros, total)
        with cgutils.for_range(builder, I64(len(chain))) as loop:
            step = builder.add(builder.mul(loop.index, I64(chain.step)), I64(chain.start))
            row_at = simd.at(builder, second, builder.mul(step, I64(second_stride)))
            vectors = [simd.load(builder, simd.at(builder, row_at, vector_step * i), kind) for i in range(num_vectors)]
            column_at = simd.at(builder, first, builder.mul(step, I64(4)))
            for row in range(ROWS_AT_ONCE):
                number_here = simd.load(builder, simd.at(builder, column_at, first_stride * row), F32)
                factor = simd.splat(builder, number_here, lanes)
                for total, vector in zip(totals[row], vectors, strict=True):
                    builder.store(simd.fma(builder, vector, factor, builder.load(total)), total)
        for total, place in pairs:
            value = builder.load(total)
            if number:
                value = builder.fadd(simd.load(builder, place, kind), value)
            simd.store(builder, value, place)


@intrinsic
def _score(typing_context: Any, head_dim, at_once, queries, keys, scores):  # type: ignore[no-untyped-def]
    """scores [ROWS_AT_ONCE, PIECE_TOKENS] = queries [ROWS_AT_ONCE, D] · keys, of SCORE_TOKENS tokens.

    keys: of one head, blocks [D, 16] float32; the chains of additions are those of `at_once` heads in `_block_scores`.
    """
    if not simd.are_literal(head_dim, at_once):
        return None
    width, chains = head_dim.literal_value, num_chains(at_once.literal_value)
    lanes = REGISTER_LANES
    vector_step = 4 * width * BLOCK_SIZE if lanes == BLOCK_SIZE else 4 * lanes

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        queries, keys, scores = arguments[2:]
        steps = [range(chain, width, chains) for chain in range(chains)]
        _multiply(builder, queries, 4 * width, keys, 4 * BLOCK_SIZE, vector_step, MOST_VECTORS, steps, scores,
                  4 * PIECE_TOKENS, adds=False)  # fmt: skip
        return context.get_dummy_value()

    return types.void(head_dim, at_once, *([types.uint64] * 3)), generate


@intrinsic
def _weigh(typing_context: Any, head_dim, weights, values, outputs):  # type: ignore[no-untyped-def]
    """outputs [ROWS_AT_ONCE, D] += weights [ROWS_AT_ONCE, PIECE_TOKENS] · values, of CHUNK_TOKENS tokens.

    values: of one head, [CHUNK_TOKENS, D] float32.
    """
    if not simd.are_literal(head_dim):
        return None
    width = head_dim.literal_value
    num_vectors = vectors_of_values(width)
    part_bytes = 4 * num_vectors * REGISTER_LANES

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        weights, values, outputs = arguments[1:]
        with cgutils.for_range(builder, I64(4 * width // part_bytes)) as parts:
            offset = builder.mul(parts.index, I64(part_bytes))
            _multiply(builder, weights, 4 * PIECE_TOKENS, simd.at(builder, values, offset), 4 * width,
                      4 * REGISTER_LANES, num_vectors, [range(CHUNK_TOKENS)], simd.at(builder, outputs, offset),
                      4 * width, adds=True)  # fmt: skip
        return context.get_dummy_value()

    return types.void(head_dim, *([types.uint64] * 3)), generate


@intrinsic
def _fetch(typing_context: Any, head_dim, kind, start):  # type: ignore[no-untyped-def]
    """Has one head's keys or values of a block fetched meanwhile."""
    if not simd.are_literal(head_dim, kind):
        return None
    num_bytes = ITEM_SIZE[kind.literal_value] * head_dim.literal_value * BLOCK_SIZE

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        for line in range(0, num_bytes, CACHE_LINE):
            simd.prefetch(builder, simd.at(builder, arguments[2], line))
        return context.get_dummy_value()

    return types.void(head_dim, kind, types.uint64), generate


@compiled()
def piece_scratch(head_dim, is_used):  # type: ignore[no-untyped-def]
    """What a thread needs for `attend_pieces`: queries, scores, outputs, and widened keys or values.

    All zeros, for rows up to a multiple of ROWS_AT_ONCE are computed, whatever is there.
    """
    num_rows, num_tokens = (MOST_ROWS, CHUNK_TOKENS) if is_used else (0, 0)
    scratch = (
        aligned_floats(num_rows * head_dim),
        aligned_floats(num_rows * PIECE_TOKENS),
        aligned_floats(num_rows * head_dim),
        aligned_floats(num_tokens * head_dim),
    )
    for floats in scratch:
        floats[:] = np.float32(0.0)
    return scratch


@compiled()
def attend_pieces(  # type: ignore[no-untyped-def]
    head_dim,  # literal, as are the next two
    at_once,
    kind,  # of the cache
    counters,
    stage,
    segments,  # [segments, 4] int64: first block, end, first member, number of members; each a whole piece
    members,  # [members, 2] int64: a row, and its part of this segment
    group,  # query heads for each key head
    num_kv_heads,
    query,  # [M, at least H · D] float32, scaled
    keys,  # address of the layer's keys in block 0
    values,
    block_stride,  # bytes
    block_tables,  # [S, max_blocks] int32
    table_rows,  # [M] int64
    scratch,  # piece_scratch of this thread
    parts,  # [parts, H, PART_HEADER + D] float32
):
    """Parts of the members' attention over the segments' blocks, shared among the threads."""
    literally(head_dim)
    literally(at_once)
    literally(kind)
    queries, scores, outputs, wide = scratch
    queries_at, scores_at = np.uint64(queries.ctypes.data), np.uint64(scores.ctypes.data)
    outputs_at, wide_at = np.uint64(outputs.ctypes.data), np.uint64(wide.ctypes.data)
    query_at, query_step = np.uint64(query.ctypes.data), np.uint64(query.strides[0])
    parts_at, head_step = np.uint64(parts.ctypes.data), np.uint64(parts.strides[1])
    row_bytes, score_bytes = np.uint64(4 * head_dim), np.uint64(4 * PIECE_TOKENS)
    row_vectors, block_vectors = np.uint64(head_dim // LANES), np.uint64(head_dim * BLOCK_SIZE // LANES)
    stored_bytes = np.uint64(head_dim * BLOCK_SIZE * (4 if kind == FLOAT32 else 2))
    block_bytes, header_bytes = np.uint64(4 * head_dim * BLOCK_SIZE), np.uint64(4 * PART_HEADER)

    for item in items(counters, stage, segments.shape[0] * num_kv_heads, 1):
        segment, kv_head = item // num_kv_heads, item % num_kv_heads
        first_block, first_member = segments[segment, 0], segments[segment, 2]
        num_rows = segments[segment, 3] * group
        head_keys = keys + np.uint64(kv_head) * stored_bytes
        head_values = values + np.uint64(kv_head) * stored_bytes
        block_ids = block_tables[table_rows[members[first_member, 0]]]
        for i in range(num_rows):
            row, head = members[first_member + i // group, 0], kv_head * group + i % group
            source = query_at + np.uint64(row) * query_step + np.uint64(head) * row_bytes
            narrow(FLOAT32, source, queries_at + np.uint64(i) * row_bytes, row_vectors)
        for i in range(num_rows * head_dim):
            outputs[i] = np.float32(0.0)

        for block in range(PIECE_BLOCKS):
            step = np.uint64(block % CHUNK_BLOCKS)
            block_at = np.uint64(block_ids[first_block + block]) * block_stride
            widen(kind, head_keys + block_at, wide_at + step * block_bytes, block_vectors)
            ahead = block + CHUNK_BLOCKS
            ahead_at = np.uint64(block_ids[first_block + ahead % PIECE_BLOCKS]) * block_stride
            _fetch(head_dim, kind, (head_keys if ahead < PIECE_BLOCKS else head_values) + ahead_at)
            if block % CHUNK_BLOCKS == CHUNK_BLOCKS - 1:
                chunk_token = (block + 1 - CHUNK_BLOCKS) * BLOCK_SIZE
                for first in range(0, num_rows, ROWS_AT_ONCE):
                    here = queries_at + np.uint64(first) * row_bytes
                    target = scores_at + np.uint64(first) * score_bytes
                    for token in range(0, CHUNK_TOKENS, SCORE_TOKENS):
                        place = np.uint64(token // BLOCK_SIZE) * block_bytes + np.uint64(4 * (token % BLOCK_SIZE))
                        _score(head_dim, at_once, here, wide_at + place, target + np.uint64(4 * (chunk_token + token)))

        for i in range(num_rows):
            part = members[first_member + i // group, 1]
            head = np.uint64(part * parts.shape[1] + kv_head * group + i % group)
            softmax(scores_at + np.uint64(i) * score_bytes, np.uint64(PIECE_BLOCKS), parts_at + head * head_step)

        for block in range(PIECE_BLOCKS):
            step = np.uint64(block % CHUNK_BLOCKS)
            block_at = np.uint64(block_ids[first_block + block]) * block_stride
            widen(kind, head_values + block_at, wide_at + step * block_bytes, block_vectors)
            last_ahead = min(block + CHUNK_BLOCKS, PIECE_BLOCKS - 1)
            _fetch(head_dim, kind, head_values + np.uint64(block_ids[first_block + last_ahead]) * block_stride)
            if block % CHUNK_BLOCKS == CHUNK_BLOCKS - 1:
                chunk_bytes = np.uint64(4 * (block + 1 - CHUNK_BLOCKS) * BLOCK_SIZE)
                for first in range(0, num_rows, ROWS_AT_ONCE):
                    here = scores_at + np.uint64(first) * score_bytes + chunk_bytes
                    _weigh(head_dim, here, wide_at, outputs_at + np.uint64(first) * row_bytes)

        for i in range(num_rows):
            part = members[first_member + i // group, 1]
            head = np.uint64(part * parts.shape[1] + kv_head * group + i % group)
            source = outputs_at + np.uint64(i) * row_bytes
            narrow(FLOAT32, source, parts_at + head * head_step + header_bytes, row_vectors)
