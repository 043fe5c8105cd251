"""Attention of the CPU backend: compiled over the blocks in place, or gathered for torch where that is faster."""

from collections.abc import Callable
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from . import gathered_attention
from .arrays import address, as_array, kind_of, stride_bytes
from .kv_cache import is_vectorised
from .paged_attention import ROWS_BY_PIECE, attend_rows, count_pieces
from .piece_attention import PART_HEADER, heads_at_once
from .rows import widen_row
from .simd import SOURCE_STAMP, compiled
from .team import shared_team
from .work_sharing import items, new_counters

MAX_COMPILED_ROWS = 64
"""Of one sequence's prefill: above, a gather pays, for torch then multiplies whole matrices (docs/performance.md)."""


@cache
def _compile(head_dim: int, group: int, at_once: int, kind: int) -> Callable[..., None]:
    stamp = SOURCE_STAMP

    @compiled(cache=True)
    def attend(  # type: ignore[no-untyped-def]
        counters, query, wide_query, scale, keys, values, block_stride, block_tables, table_rows, context_lens, window,
        piece_starts, parts, output
    ):  # fmt: skip
        _ = stamp
        for row in items(counters, 0, query.shape[0], 1):
            widen_row(kind, query[row], wide_query[row])
            wide_query[row] *= scale
        attend_rows(head_dim, group, at_once, kind, counters, 1, wide_query, keys, values, block_stride, block_tables,
                    table_rows, context_lens, window, piece_starts, parts, output)  # fmt: skip

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
    table_rows = np.arange(len(query), dtype=np.int64)
    lens = context_lens.numpy().astype(np.int64)
    return _attend(query, key_cache, value_cache, block_tables, table_rows, lens, scale, window)


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
    if num_rows == 0:
        return torch.empty_like(query)
    group = num_heads // key_cache.shape[1]
    assert stride_bytes(key_cache, 0) == stride_bytes(value_cache, 0), "keys and values stand in one pool"
    piece_starts = count_pieces(context_lens, window or 0)
    num_parts = int(piece_starts[-1]) if num_rows <= ROWS_BY_PIECE else 0
    output = np.empty((num_rows, num_heads * head_dim), np.float32)
    shared_team().run(
        _compile(head_dim, group, heads_at_once(group, head_dim), kind_of(query)),
        new_counters(3),
        as_array(query.reshape(num_rows, -1)),
        np.empty_like(output),
        np.float32(scale),
        address(key_cache),
        address(value_cache),
        stride_bytes(key_cache, 0),
        np.ascontiguousarray(block_tables.numpy()),
        table_rows,
        context_lens,
        window or 0,
        piece_starts,
        np.empty((num_parts, num_heads, PART_HEADER + head_dim), np.float32),
        output,
    )
    return torch.from_numpy(output).view(query.shape).to(query.dtype)
