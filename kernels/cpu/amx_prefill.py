"""Attention by matrix tiles on its own, as the tiled step computes it inside."""

from collections.abc import Callable
from functools import cache

import numpy as np
import torch
from torch import Tensor

from . import amx
from .amx import COLUMNS, ROW_BYTES, ROWS
from .amx_attention import attend_chunks, plan_chunks, scratch_floats
from .amx_layout import num_parts_of, store_values, tiles_for
from .arrays import address, stride_bytes
from .simd import LOG2_E, SOURCE_STAMP, compiled
from .team import default_threads, shared_team
from .work_sharing import items, new_counters


@cache
def _compile(head_dim: int, terms: int) -> Callable[..., None]:
    stamp = SOURCE_STAMP

    @compiled(cache=True)
    def attend(  # type: ignore[no-untyped-def]
        counters, shapes, chunks, group, num_kv_heads, query, queries, query_rows, positions, keys, values,
        block_stride, block_tables, table_rows, window, output
    ):  # fmt: skip
        _ = stamp
        amx.configure(np.uint64(shapes.ctypes.data))
        scratch = amx.aligned_floats(scratch_floats(group, head_dim))
        num_parts, query_bytes = num_parts_of(terms), np.uint64(2 * head_dim)
        queries_at, part_step = np.uint64(queries.ctypes.data), np.uint64(query_rows) * query_bytes
        for row in items(counters, 0, query.shape[0], ROWS):
            for head in range(query.shape[1]):
                place = queries_at + np.uint64(head * num_parts) * part_step + np.uint64(row) * query_bytes
                store_values(terms, np.uint64(query[row, head].ctypes.data), np.uint64(head_dim // COLUMNS), place,
                             np.uint64(ROW_BYTES), part_step)  # fmt: skip
        attend_chunks(head_dim, terms, counters, 1, chunks, group, num_kv_heads, queries_at, query_rows, positions,
                      keys, values, block_stride, block_tables, table_rows, window, scratch,
                      np.uint64(output.ctypes.data))  # fmt: skip
        amx.release()

    return attend


def attention_prefill(
    query: Tensor,  # [T, H, D] float32 or bfloat16
    key_cache: Tensor,  # [N, K, D, 16] bfloat16
    value_cache: Tensor,  # [N, K, 16, D] bfloat16
    block_tables: Tensor,  # [S, max_blocks] int32
    context_lens: Tensor,  # [S] int32
    cu_seqlens_q: Tensor,  # [S + 1] int32
    scale: float,
    window: int | None,
    terms: int,
) -> Tensor:  # [T, H, D] float32
    """softmax(Q Kᵀ · scale + mask) V, causal, the mask aligned to the end of each context."""
    num_rows, num_heads, head_dim = query.shape
    num_kv_heads = key_cache.shape[1]
    counts = np.diff(cu_seqlens_q.numpy()).astype(np.int64)
    lasts = np.cumsum(counts)
    table_rows = np.repeat(np.arange(len(counts)), counts)
    positions = context_lens.numpy().astype(np.int64)[table_rows] - lasts[table_rows] + np.arange(num_rows)
    output = tiles_for(num_rows, num_heads * head_dim, terms)
    shared_team().run(
        _compile(head_dim, terms),
        new_counters(2),
        amx.tile_shapes(),
        plan_chunks(counts, num_kv_heads, default_threads()),
        num_heads // num_kv_heads,
        num_kv_heads,
        (query.float() * (scale * LOG2_E)).numpy(),
        np.empty((num_heads, amx.parts(terms), num_rows + ROWS, 2 * head_dim), np.uint8),
        num_rows + ROWS,
        positions,
        address(key_cache),
        address(value_cache),
        stride_bytes(key_cache, 0),
        block_tables.numpy(),
        table_rows,
        window or 0,
        output,
    )
    tiles = torch.from_numpy(output).view(torch.bfloat16)
    shape = (-1, num_heads * head_dim // COLUMNS, amx.parts(terms), ROWS, COLUMNS)
    rows = tiles.view(shape).float().sum(2).transpose(1, 2).reshape(-1, num_heads, head_dim)
    return rows[:num_rows]
