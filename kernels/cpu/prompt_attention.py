"""Attention of neighbouring rows of one sequence, by vectors of bfloat16.

The rows of a prompt see the same blocks, each one token more than the row before. So a chunk of them is computed
together, for one key head at a time: keys and values are woven once, two rows into one, and multiplied with all the
chunk's queries and weights as small matrix products. One instruction adds up the products of two numbers:

    c[n] += a[2p] b[2p, n] + a[2p + 1] b[2p + 1, n]

What isn't bfloat16 in the cache is rounded to it: queries, and the weights of softmax, whose sum isn't. Long contexts
are cut into stretches, which are merged by their log-sum-exp.
"""

import itertools
import math
from typing import Any

import numpy as np
from numba import literally, types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from . import simd
from .amx import aligned_floats
from .bfloat16 import PAIRS, dot, narrow_pair, weave
from .heads import scale_vectors
from .paged_attention import merge_part
from .piece_attention import BLOCK_SIZE, PART_HEADER
from .rows import narrow
from .simd import BFLOAT16, FLOAT32, FLOATS, I32, I64, LANES, LOG2_E, SHORT_POWER_SERIES, compiled
from .work_sharing import items

CHUNK_QUERIES = 48
"""Rows of a chunk times heads of a group: enough that weaving keys costs little beside multiplying them, few enough
that their scores stay in a core's second cache and all threads find work."""
ROWS_AT_ONCE = 6
VECTORS_AT_ONCE = 4
"""A product's sums, so many rows times so many vectors, fill the registers: each load serves several of them."""
WOVEN_BLOCKS = VECTORS_AT_ONCE  # whose keys or values are woven at once: they stay in a core's nearest cache
WOVEN_TOKENS = WOVEN_BLOCKS * BLOCK_SIZE
STRETCH_TOKENS = 1024
"""Whose scores are kept at once: merging costs as much as attending to some 20 tokens."""
SCORE_FLOATS = STRETCH_TOKENS + LANES  # of a query; a multiple of a page would put all queries into the same cache sets
SCORE_BYTES = 4 * SCORE_FLOATS
MASKED = -1e30  # finite: what is computed of it is 0, not NaN

assert CHUNK_QUERIES % ROWS_AT_ONCE == 0


def plan_prompts(
    counts: NDArray[np.int64],  # [S] rows of each sequence, which follow each other
    first_row: int,
    group: int,
    num_kv_heads: int,
    num_threads: int,
) -> NDArray[np.int64]:  # [chunks, 2]: first row, number of rows
    """Cuts the sequences' rows into chunks for `attend_prompts`, equally long within a sequence but for rounding.

    One more chunk where threads could not share them evenly.
    """
    most = max(1, CHUNK_QUERIES // group)
    chunks: list[tuple[int, int]] = []
    for count in counts.tolist():
        num_chunks = -(-count // most)
        num_chunks += num_chunks * num_kv_heads % num_threads != 0
        cuts = [first_row + count * i // max(num_chunks, 1) for i in range(num_chunks + 1)]
        chunks += [(start, end - start) for start, end in itertools.pairwise(cuts)]
        first_row += count
    return np.array(chunks, np.int64).reshape(-1, 2)


@intrinsic
def _weave_keys(typing_context: Any, head_dim, source, target):  # type: ignore[no-untyped-def]
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
def _weave_values(typing_context: Any, head_dim, source, target):  # type: ignore[no-untyped-def]
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
def _score(typing_context: Any, head_dim, queries, keys, scores):  # type: ignore[no-untyped-def]
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
def _weigh(typing_context: Any, head_dim, weights, values, outputs):  # type: ignore[no-untyped-def]
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
def _soften(typing_context: Any, scores, num_blocks, part):  # type: ignore[no-untyped-def]
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


@compiled()
def prompt_scratch(head_dim, group, is_used):  # type: ignore[no-untyped-def]
    """What a thread needs for `attend_prompts`: queries, scores, woven keys or values, a stretch's parts and what the
    stretches so far came to.

    All zeros, for queries up to a multiple of ROWS_AT_ONCE are computed, whatever is there.
    """
    most = (max(CHUNK_QUERIES, group) + ROWS_AT_ONCE - 1) // ROWS_AT_ONCE * ROWS_AT_ONCE if is_used else 0
    num_tokens = WOVEN_TOKENS if is_used else 0
    scratch = (
        aligned_floats(most * head_dim // 2),
        aligned_floats(most * SCORE_FLOATS),
        aligned_floats(most * head_dim),
        aligned_floats(num_tokens * head_dim // 2),
        aligned_floats(most * (PART_HEADER + head_dim)),
        aligned_floats(most * (PART_HEADER + head_dim)),
    )
    for floats in scratch:
        floats[:] = np.float32(0.0)
    return scratch


@compiled()
def _first_query(token, first_len, group):  # type: ignore[no-untyped-def]
    """From which query on a context reaches beyond `token`, rounded down to what is computed together."""
    return max(token + 1 - first_len, 0) * group // ROWS_AT_ONCE * ROWS_AT_ONCE


@compiled()
def attend_prompts(  # type: ignore[no-untyped-def]
    head_dim,  # literal
    counters,
    stage,
    chunks,  # [chunks, 2] of plan_prompts
    group,  # query heads for each key head
    num_kv_heads,
    query,  # [M, at least H · D] float32, scaled
    keys,  # address of the layer's keys in block 0, bfloat16
    values,
    block_stride,  # bytes
    block_tables,  # [S, max_blocks] int32
    table_rows,  # [M] int64
    context_lens,  # [M] int64, the row's own token included
    scratch,  # prompt_scratch of this thread
    output,  # [M, H · D] float32
):
    """Attention of the chunks' rows, shared among the threads."""
    literally(head_dim)
    queries, scores, outputs, woven, parts_floats, merged_floats = scratch
    part_floats = PART_HEADER + head_dim
    parts = parts_floats.reshape(parts_floats.size // part_floats, part_floats)
    merged = merged_floats.reshape(parts.shape)
    pairs = woven.view(np.uint32)
    queries_at, scores_at = np.uint64(queries.ctypes.data), np.uint64(scores.ctypes.data)
    outputs_at, woven_at = np.uint64(outputs.ctypes.data), np.uint64(woven.ctypes.data)
    query_at, query_step = np.uint64(query.ctypes.data), np.uint64(query.strides[0])
    merged_at, output_at, output_step = (
        np.uint64(merged.ctypes.data),
        np.uint64(output.ctypes.data),
        np.uint64(output.strides[0]),
    )
    parts_at, part_step = np.uint64(parts.ctypes.data), np.uint64(parts.strides[0])
    row_bytes, narrow_bytes, score_bytes = np.uint64(4 * head_dim), np.uint64(2 * head_dim), np.uint64(SCORE_BYTES)
    row_vectors = np.uint64(head_dim // LANES)
    block_bytes, header_bytes = np.uint64(2 * head_dim * BLOCK_SIZE), np.uint64(4 * PART_HEADER)

    num_items = chunks.shape[0] * num_kv_heads
    for item in items(counters, stage, num_items, 1):
        place = num_items - 1 - item  # the longest contexts first, so that the threads end together
        chunk, kv_head = place // num_kv_heads, place % num_kv_heads
        first_row, num_rows = chunks[chunk, 0], chunks[chunk, 1]
        num_queries, first_head = num_rows * group, kv_head * group
        first_len = context_lens[first_row]
        last_len = first_len + num_rows - 1
        head_keys = keys + np.uint64(kv_head) * block_bytes
        head_values = values + np.uint64(kv_head) * block_bytes
        block_ids = block_tables[table_rows[first_row]]
        for i in range(num_queries):
            source = query_at + np.uint64(first_row + i // group) * query_step
            source += np.uint64(first_head + i % group) * row_bytes
            narrow(BFLOAT16, source, queries_at + np.uint64(i) * narrow_bytes, row_vectors)

        for first_token in range(0, last_len, STRETCH_TOKENS):
            num_tokens = min(last_len - first_token, STRETCH_TOKENS)
            first_block = first_token // BLOCK_SIZE
            num_blocks = (num_tokens + BLOCK_SIZE - 1) // BLOCK_SIZE
            first_seen = max(first_token + 1 - first_len, 0) * group

            for chunk_token in range(0, num_tokens, WOVEN_TOKENS):
                chunk_block = chunk_token // BLOCK_SIZE
                for block in range(chunk_block, min(chunk_block + WOVEN_BLOCKS, num_blocks)):
                    block_at = np.uint64(block_ids[first_block + block]) * block_stride
                    _weave_keys(head_dim, head_keys + block_at,
                                woven_at + np.uint64(block - chunk_block) * block_bytes)  # fmt: skip
                for first in range(_first_query(first_token + chunk_token, first_len, group), num_queries,
                                   ROWS_AT_ONCE):  # fmt: skip
                    _score(head_dim, queries_at + np.uint64(first) * narrow_bytes, woven_at,
                           scores_at + np.uint64(first) * score_bytes + np.uint64(4 * chunk_token))  # fmt: skip

            end = (num_tokens + WOVEN_TOKENS - 1) // WOVEN_TOKENS * WOVEN_TOKENS
            for i in range(first_seen, num_queries):
                num_seen = min(first_len + i // group - first_token, STRETCH_TOKENS)
                num_seen_blocks = (num_seen + BLOCK_SIZE - 1) // BLOCK_SIZE
                for token in range(num_seen, num_seen_blocks * BLOCK_SIZE):
                    scores[i * SCORE_FLOATS + token] = np.float32(MASKED)
                _soften(scores_at + np.uint64(i) * score_bytes, np.uint64(num_seen_blocks),
                        parts_at + np.uint64(i) * part_step)  # fmt: skip
                for pair in range((num_seen_blocks + 1) // 2 * BLOCK_SIZE, end // 2):
                    scores[i * SCORE_FLOATS + pair] = np.float32(0.0)

            for i in range(num_queries * head_dim):
                outputs[i] = np.float32(0.0)
            for chunk_token in range(0, num_tokens, WOVEN_TOKENS):
                chunk_block = chunk_token // BLOCK_SIZE
                for block in range(chunk_block, min(chunk_block + WOVEN_BLOCKS, num_blocks)):
                    block_at = np.uint64(block_ids[first_block + block]) * block_stride
                    _weave_values(head_dim, head_values + block_at,
                                  woven_at + np.uint64(block - chunk_block) * block_bytes)  # fmt: skip
                # Behind the last token nothing was written yet: it may be NaN, which a weight of 0 doesn't hide.
                num_left = min(num_tokens - chunk_token, WOVEN_TOKENS)
                for i in range(num_left // 2 * head_dim, (num_left + 1) // 2 * head_dim):
                    pairs[i] &= 0xFFFF
                for i in range((num_left + 1) // 2 * head_dim, WOVEN_TOKENS // 2 * head_dim):
                    pairs[i] = 0
                for first in range(_first_query(first_token + chunk_token, first_len, group), num_queries,
                                   ROWS_AT_ONCE):  # fmt: skip
                    here = scores_at + np.uint64(first) * score_bytes + np.uint64(2 * chunk_token)
                    _weigh(head_dim, here, woven_at, outputs_at + np.uint64(first) * row_bytes)

            for i in range(first_seen, num_queries):
                narrow(FLOAT32, outputs_at + np.uint64(i) * row_bytes,
                       parts_at + np.uint64(i) * part_step + header_bytes, row_vectors)  # fmt: skip
            merge_part(parts[first_seen:num_queries], merged[first_seen:num_queries], first_token == 0)

        for i in range(num_queries):
            source = merged_at + np.uint64(i) * part_step
            scale_vectors(source + header_bytes, row_vectors, np.float32(1.0) / merged[i, 1])
            target = output_at + np.uint64(first_row + i // group) * output_step
            narrow(FLOAT32, source + header_bytes, target + np.uint64(first_head + i % group) * row_bytes, row_vectors)
