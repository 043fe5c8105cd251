"""Attention of neighbouring rows of one sequence, by vectors of bfloat16.

The rows of a prompt see the same blocks, each one token more than the row before. So a chunk of them is computed
together, for one key head at a time: keys and values are woven once and multiplied with all the chunk's queries and
weights (prompt_products.py).

What isn't bfloat16 in the cache is rounded to it: queries, and the weights of softmax, whose sum isn't. Long contexts
are cut into stretches, which are merged by their log-sum-exp.
"""

import itertools

import numpy as np
from numba import literally
from numpy.typing import NDArray

from .amx import aligned_floats
from .heads import scale_vectors
from .paged_attention import merge_part
from .piece_attention import BLOCK_SIZE, PART_HEADER
from .prompt_products import (
    ROWS_AT_ONCE,
    SCORE_BYTES,
    SCORE_FLOATS,
    STRETCH_TOKENS,
    WOVEN_BLOCKS,
    WOVEN_TOKENS,
    score_rows,
    soften,
    weave_keys,
    weave_values,
    weigh_rows,
)
from .rows import narrow
from .simd import BFLOAT16, FLOAT32, LANES, compiled
from .work_sharing import items

CHUNK_QUERIES = 48
"""Rows of a chunk times heads of a group: enough that weaving keys costs little beside multiplying them, few enough
that their scores stay in a core's second cache and all threads find work."""
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
                    weave_keys(head_dim, head_keys + block_at,
                                woven_at + np.uint64(block - chunk_block) * block_bytes)  # fmt: skip
                for first in range(_first_query(first_token + chunk_token, first_len, group), num_queries,
                                   ROWS_AT_ONCE):  # fmt: skip
                    score_rows(head_dim, queries_at + np.uint64(first) * narrow_bytes, woven_at,
                           scores_at + np.uint64(first) * score_bytes + np.uint64(4 * chunk_token))  # fmt: skip

            end = (num_tokens + WOVEN_TOKENS - 1) // WOVEN_TOKENS * WOVEN_TOKENS
            for i in range(first_seen, num_queries):
                num_seen = min(first_len + i // group - first_token, STRETCH_TOKENS)
                num_seen_blocks = (num_seen + BLOCK_SIZE - 1) // BLOCK_SIZE
                for token in range(num_seen, num_seen_blocks * BLOCK_SIZE):
                    scores[i * SCORE_FLOATS + token] = np.float32(MASKED)
                soften(scores_at + np.uint64(i) * score_bytes, np.uint64(num_seen_blocks),
                        parts_at + np.uint64(i) * part_step)  # fmt: skip
                for pair in range((num_seen_blocks + 1) // 2 * BLOCK_SIZE, end // 2):
                    scores[i * SCORE_FLOATS + pair] = np.float32(0.0)

            for i in range(num_queries * head_dim):
                outputs[i] = np.float32(0.0)
            for chunk_token in range(0, num_tokens, WOVEN_TOKENS):
                chunk_block = chunk_token // BLOCK_SIZE
                for block in range(chunk_block, min(chunk_block + WOVEN_BLOCKS, num_blocks)):
                    block_at = np.uint64(block_ids[first_block + block]) * block_stride
                    weave_values(head_dim, head_values + block_at,
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
                    weigh_rows(head_dim, here, woven_at, outputs_at + np.uint64(first) * row_bytes)

            for i in range(first_seen, num_queries):
                narrow(FLOAT32, outputs_at + np.uint64(i) * row_bytes,
                       parts_at + np.uint64(i) * part_step + header_bytes, row_vectors)  # fmt: skip
            merge_part(parts[first_seen:num_queries], merged[first_seen:num_queries], first_token == 0)

        for i in range(num_queries):
            source = merged_at + np.uint64(i) * part_step
            scale_vectors(source + header_bytes, row_vectors, np.float32(1.0) / merged[i, 1])
            target = output_at + np.uint64(first_row + i // group) * output_step
            narrow(FLOAT32, source + header_bytes, target + np.uint64(first_head + i % group) * row_bytes, row_vectors)
