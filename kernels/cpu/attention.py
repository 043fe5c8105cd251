"""Attention of the CPU backend: compiled over the blocks in place, or gathered for torch where that is faster."""

from collections.abc import Callable
from functools import cache

import numpy as np
import torch
from numba import carray
from numpy.typing import NDArray
from torch import Tensor

from . import gathered_attention
from .arrays import kind_of
from .kv_cache import is_vectorised
from .paged_attention import ROWS_BY_PIECE, attend_rows, count_pieces_compiled
from .piece_attention import PART_HEADER, PIECE_BLOCKS, heads_at_once
from .rows import narrow_row, widen_row
from .simd import FLOAT32, SOURCE_STAMP, compiled, pointer
from .team import shared_team
from .work_sharing import items, new_counters

MAX_COMPILED_ROWS = 64
"""Of one sequence's prefill: above, a gather pays, for torch then multiplies whole matrices (docs/performance.md)."""

MIN_SHARED_WORK = 4 * 576
"""Pieces of contexts times the width of a query: below, one thread is done before another has woken."""


@cache
def _compile(head_dim: int, group: int, kind: int) -> Callable[..., None]:
    stamp = SOURCE_STAMP
    at_once = heads_at_once(group, head_dim)
    stored, item_size = (np.float32, 4) if kind == FLOAT32 else (np.uint16, 2)

    @compiled(cache=True)
    def attend(  # type: ignore[no-untyped-def]
        counters,  # of 4 stages
        query_at,  # address of [M, H, D], heads next to each other
        query_stride,  # bytes from row to row
        output_at,  # address of [M, H, D]
        num_heads,
        scale,
        keys,  # address of block 0, as of the values
        values,
        block_stride,
        tables_at,  # address of [S, num_columns] int32
        num_columns,
        table_rows,  # [M] int64
        context_lens,  # [M] int64
        window,
        max_pieces,  # that all rows may have together; 0: whole rows are shared among the threads
        scratch,  # float32, `scratch_size`
    ):
        # A helper that comes late still reads the counters and our own arrays, but nothing behind an address.
        _ = stamp
        num_rows, width = len(context_lens), num_heads * head_dim
        wide_query = scratch[: num_rows * width].reshape(num_rows, width)
        attended = scratch[num_rows * width : 2 * num_rows * width].reshape(num_rows, width)
        parts = scratch[2 * num_rows * width :].reshape(max_pieces, num_heads, PART_HEADER + head_dim)
        tables = carray(pointer(tables_at), (max(num_rows, 1), num_columns), np.int32)
        for row in items(counters, 0, num_rows, 1):
            widen_row(kind, carray(pointer(query_at + row * query_stride), (width,), stored), wide_query[row])
            wide_query[row] *= np.float32(scale)
        nothing = np.zeros(num_rows + 1, np.int64)
        attend_rows(head_dim, group, at_once, kind, counters, 1, wide_query, np.uint64(keys), np.uint64(values),
                    np.uint64(block_stride), tables, table_rows, context_lens, window,
                    count_pieces_compiled(context_lens, window, nothing[:num_rows]), nothing[:num_rows], nothing,
                    parts[:0], parts, attended)  # fmt: skip
        for row in items(counters, 3, num_rows, 1):
            narrow_row(kind, attended[row], carray(pointer(output_at + row * width * item_size), (width,), stored))

    return attend


def attention_decode(
    query: Tensor,  # [S, H, D]
    key_cache: Tensor,  # [N, K, D, B] or [N, K, B, D]
    value_cache: Tensor,  # [N, K, B, D]
    block_tables: Tensor,  # [S, max_blocks] int32
    context_lens: Tensor,  # [S] int32
    scale: float,
    window: int | None,
) -> Tensor:  # [S, H, D]
    """softmax(q Kᵀ · scale) V for each sequence's last token."""
    if not is_vectorised(value_cache.shape[2], value_cache.shape[3]):
        return gathered_attention.attention_decode(
            query, key_cache, value_cache, block_tables, context_lens, scale, window
        )
    lens = np.array(context_lens.tolist(), np.int64)  # quicker than a tensor's own conversion, and a copy
    return _attend(query, key_cache, value_cache, block_tables, _own_tables(len(lens)), lens, scale, window)


def attention_prefill(
    query: Tensor,  # [T, H, D]
    key_cache: Tensor,  # [N, K, D, B] or [N, K, B, D]
    value_cache: Tensor,  # [N, K, B, D]
    block_tables: Tensor,  # [S, max_blocks] int32
    context_lens: Tensor,  # [S] int32
    cu_seqlens_q: Tensor,  # [S + 1] int32
    max_query_len: int,
    scale: float,
    window: int | None,
) -> Tensor:  # [T, H, D]
    """softmax(Q Kᵀ · scale + mask) V, causal, the mask aligned to the end of each context."""
    if max_query_len > MAX_COMPILED_ROWS or not is_vectorised(value_cache.shape[2], value_cache.shape[3]):
        return gathered_attention.attention_prefill(
            query, key_cache, value_cache, block_tables, context_lens, cu_seqlens_q, max_query_len, scale, window
        )
    starts = cu_seqlens_q.numpy().astype(np.int64)
    counts = np.diff(starts)
    ends = context_lens.numpy().astype(np.int64)
    table_rows = np.repeat(np.arange(len(counts)), counts)
    lens = np.arange(len(query)) - np.repeat(starts[1:], counts) + np.repeat(ends, counts) + 1
    return _attend(query, key_cache, value_cache, block_tables, table_rows, np.maximum(lens, 0), scale, window)


@cache
def _own_tables(num_rows: int) -> NDArray[np.int64]:
    """Each row reads a block table of its own."""
    return np.arange(num_rows)


def _attend(
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    block_tables: Tensor,
    table_rows: NDArray[np.int64],
    context_lens: NDArray[np.int64],
    scale: float,
    window: int | None,
) -> Tensor:
    num_rows, num_heads, head_dim = query.shape
    if not query.is_contiguous() and (query.stride(1) != head_dim or query.stride(2) != 1):
        query = query.contiguous()
    output = torch.empty_like(query, memory_format=torch.contiguous_format)
    if num_rows == 0:
        return output
    block_tables = block_tables.contiguous()
    num_columns, item_size = block_tables.shape[1], query.element_size()
    block_stride = key_cache.stride(0)
    assert value_cache.stride(0) == block_stride, "keys and values stand in one pool"
    max_pieces = num_rows * -(-num_columns // PIECE_BLOCKS)
    num_parts = max_pieces if num_rows <= ROWS_BY_PIECE else 0
    width = num_heads * head_dim
    attend = _compile(head_dim, num_heads // key_cache.shape[1], kind_of(query))
    arguments = (
        new_counters(4),
        query.data_ptr(),
        query.stride(0) * item_size,
        output.data_ptr(),
        num_heads,
        scale,
        key_cache.data_ptr(),
        value_cache.data_ptr(),
        block_stride * item_size,
        block_tables.data_ptr(),
        num_columns,
        table_rows,
        context_lens,
        window or 0,
        num_parts,
        np.empty(2 * num_rows * width + num_parts * num_heads * (PART_HEADER + head_dim), np.float32),
    )
    if max_pieces * width < MIN_SHARED_WORK:
        attend(*arguments)
    else:
        shared_team().run(attend, *arguments)
    return output
