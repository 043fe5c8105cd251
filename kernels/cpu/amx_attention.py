"""Attention of many tokens of one sequence over its paged context, by matrix tiles.

The heads of a group share the keys and values, which are woven into tiles from their blocks on the way (amx_pieces.py).

Contexts are cut by position, and a row of a tile's product depends on its own query alone, so a token's result is the
same to the bit whatever is computed beside it here.
"""

import numpy as np
from numba import literally
from numpy.typing import NDArray

from .amx import COLUMNS, ROW_BYTES, ROWS, TILE_BYTES
from .amx_layout import num_parts_of, row_address
from .amx_pieces import (
    ALL,
    BLOCK_SIZE,
    CAUSAL,
    LEAST,
    PIECE_BLOCKS,
    PIECE_TOKENS,
    SCORE_BYTES,
    WINDOWED,
    add_values,
    fetch,
    soften,
    store_rows,
    tile_scores,
    weave_piece,
)
from .simd import LANES, compiled
from .work_sharing import items

CHUNK_ROWS = 8 * ROWS  # at most
FETCHES = 4  # tiles that together fetch the next piece


def plan_chunks(
    counts: NDArray[np.int64],  # [S] tokens of each sequence
    num_kv_heads: int,
    num_threads: int,
) -> NDArray[np.int64]:  # [chunks, 2]: first row, number of rows
    """Cuts the sequences' rows into chunks that share their keys: the larger, the less often keys are woven, but every
    thread must find work."""
    for chunk_rows, items_per_thread in ((CHUNK_ROWS, 8), (2 * ROWS, 2), (ROWS, 0)):
        num_chunks = int((-(-counts // chunk_rows)).sum())
        if num_chunks * num_kv_heads >= items_per_thread * num_threads:
            break
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
    num_tiles = CHUNK_ROWS // ROWS * group
    tile = TILE_BYTES // 4
    return (
        num_tiles * ROWS * (head_dim + 1 + LANES)  # outputs, tops, sums
        + PIECE_BLOCKS * (head_dim // COLUMNS) * tile  # keys
        + PIECE_BLOCKS // 2 * (head_dim // LANES) * tile  # values
        + ROWS * PIECE_TOKENS  # scores
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
    most_tiles = CHUNK_ROWS // ROWS * group
    outputs_at = np.uint64(scratch.ctypes.data)
    keys_at = outputs_at + np.uint64(4 * most_tiles * ROWS * head_dim)
    values_at = keys_at + np.uint64(PIECE_BLOCKS * key_steps) * tile_bytes
    scores_at = values_at + np.uint64(PIECE_BLOCKS // 2 * value_tiles) * tile_bytes
    sums_at = scores_at + np.uint64(ROWS * SCORE_BYTES)
    tops_at = sums_at + np.uint64(most_tiles * ROWS * ROW_BYTES)
    outputs = scratch[: most_tiles * ROWS * head_dim].reshape(most_tiles, ROWS, head_dim)
    tops_start = np.int64(tops_at - outputs_at) // 4
    tops = scratch[tops_start : tops_start + most_tiles * ROWS]
    sums_start = np.int64(sums_at - outputs_at) // 4
    sums = scratch[sums_start : sums_start + most_tiles * ROWS * LANES].reshape(most_tiles, ROWS, LANES)
    output_bytes, query_bytes = np.uint64(ROWS * 4 * head_dim), np.uint64(2 * head_dim)
    part_step = np.uint64(query_rows) * query_bytes
    fetched_bytes = head_bytes // np.uint64(FETCHES)
    ahead = np.zeros(ROWS, np.uint64)
    ahead_at = np.uint64(ahead.ctypes.data)

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
        tops[: num_tiles * ROWS] = np.float32(LEAST)
        sums[:num_tiles] = np.float32(0.0)
        outputs[:num_tiles] = np.float32(0.0)

        first_seen = max(0, first_position + 1 - window) if window else 0
        for block in range(first_seen // BLOCK_SIZE, min(first_seen // BLOCK_SIZE + PIECE_BLOCKS, last_block + 1)):
            place = np.uint64(block_ids[block]) * block_stride + head_offset
            fetch(head_dim, keys + place, values + place)
        for piece in range(first_seen // PIECE_TOKENS, last_position // PIECE_TOKENS + 1):
            piece_start = piece * PIECE_TOKENS
            first_block = piece * PIECE_BLOCKS
            num_blocks = min(PIECE_BLOCKS, last_block + 1 - first_block)
            weave_piece(head_dim, keys + head_offset, values + head_offset, block_stride, block_ids, first_block,
                        num_blocks, last_position, keys_at, values_at)  # fmt: skip
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
                rows_here = np.uint64(min(ROWS, num_rows - tile % num_row_tiles * ROWS))
                queries_at = queries + np.uint64(head * num_parts) * part_step + np.uint64(first_query) * query_bytes
                tile_tops = tops_at + np.uint64(4 * ROWS * tile)
                tile_sums = sums_at + np.uint64(ROWS * ROW_BYTES * tile)
                tile_output = outputs_at + np.uint64(tile) * output_bytes
                for i in range(PIECE_BLOCKS):
                    # Memory answers late: what the next piece needs is asked for while this one is softened.
                    following = np.uint64(block_ids[min(first_block + PIECE_BLOCKS + i, last_block)]) * block_stride
                    following += head_offset + np.uint64(tile % FETCHES) * fetched_bytes
                    ahead[i], ahead[PIECE_BLOCKS + i] = keys + following, values + following
                tile_scores(head_dim, terms, queries_at, part_step, keys_at, num_quads, scores_at)
                if hidden + ROWS > 0:
                    soften(head_dim, terms, WINDOWED, FETCHES, ahead_at, rows_here, scores_at, hidden, num_seen,
                           tile_tops, tile_sums, tile_output)  # fmt: skip
                elif num_seen < PIECE_TOKENS:
                    soften(head_dim, terms, CAUSAL, FETCHES, ahead_at, rows_here, scores_at, hidden, num_seen,
                           tile_tops, tile_sums, tile_output)  # fmt: skip
                else:
                    soften(head_dim, terms, ALL, FETCHES, ahead_at, rows_here, scores_at, hidden, num_seen,
                           tile_tops, tile_sums, tile_output)  # fmt: skip
                add_values(head_dim, terms, scores_at, values_at, num_steps, tile_output)

        for tile in range(num_tiles):
            head, row_tile = tile // num_row_tiles, tile % num_row_tiles
            column_step = np.uint64((kv_head * group + head) * key_steps * num_parts) * tile_bytes
            row = first_row + row_tile * ROWS
            num_here = min(ROWS, num_rows - row_tile * ROWS)
            done = 0
            while done < num_here:
                # A chunk may begin anywhere in a tile of activations, so its rows may end in the next one.
                num_rows_here = min(num_here - done, ROWS - (row + done) % ROWS)
                store_rows(head_dim, terms, np.uint64(num_rows_here),
                           sums_at + np.uint64((tile * ROWS + done) * ROW_BYTES),
                           outputs_at + np.uint64(4 * (tile * ROWS + done) * head_dim),
                           row_address(terms, output, num_columns, row + done) + column_step)  # fmt: skip
                done += num_rows_here
    return ahead  # kept until here, for only its address was used
