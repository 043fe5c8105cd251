"""Causal attention of ragged queries over their paged contexts.

A program takes one sequence, one key/value head and a tile of rows; a row is one query of one head of the group
(row = query · group + head), so a group shares each load of keys and values. The online softmax is the one of
attention_decode. Query i of q sits at position context - q + i and sees the positions up to its own.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from .kv_cache import check_block_layout, locate_tokens
from .tiles import LOG2_E, dot_dtype, is_rocm, prefill_tiles


@triton.jit
def prefill_kernel(
    query,
    key_cache,
    value_cache,
    block_tables,
    context_lens,
    cu_seqlens_q,
    output,
    scale_log2,
    stride_query_token,
    stride_query_head,
    stride_key_block,
    stride_value_block,
    stride_table,
    NUM_KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    WINDOW: tl.constexpr,
    QUERIES: tl.constexpr,  # of one program: ROWS // GROUP
    ROWS: tl.constexpr,
    TOKENS: tl.constexpr,
    FEATURES: tl.constexpr,
    DOT_DTYPE: tl.constexpr,
):
    first_query = tl.program_id(0) * QUERIES
    kv_head = tl.program_id(1)
    seq = tl.program_id(2).to(tl.int64)
    first_token = tl.load(cu_seqlens_q + seq).to(tl.int64)
    num_queries = tl.load(cu_seqlens_q + seq + 1) - first_token.to(tl.int32)
    if first_query >= num_queries:
        return

    context_len = tl.load(context_lens + seq)
    rows = tl.arange(0, ROWS)
    row_query = first_query + rows // GROUP
    is_row = (rows < QUERIES * GROUP) & (row_query < num_queries)
    features = tl.arange(0, FEATURES)
    is_feature = features < HEAD_DIM
    is_output = is_row[:, None] & is_feature[None, :]
    heads = kv_head * GROUP + rows % GROUP
    tokens = first_token + row_query
    rows_of_query = query + tokens[:, None] * stride_query_token + heads[:, None] * stride_query_head
    queries = tl.load(rows_of_query + features[None, :], mask=is_output, other=0.0).to(DOT_DTYPE)

    num_before = context_len - num_queries
    row_position = num_before + row_query
    stop = tl.minimum(num_before + first_query + QUERIES, context_len)
    start = 0
    if WINDOW is not None:
        start = tl.maximum(num_before + first_query - WINDOW + 1, 0) // TOKENS * TOKENS

    table = block_tables + seq * stride_table
    maximum = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    accumulated = tl.zeros([ROWS, FEATURES], tl.float32)
    for tile_start in range(start, stop, TOKENS):
        positions = tile_start + tl.arange(0, TOKENS)
        is_held = positions < stop
        block_ids, inside = locate_tokens(table, positions, is_held, kv_head, BLOCK_SIZE, HEAD_DIM)
        key_rows = block_ids * stride_key_block + inside
        keys = tl.load(
            key_cache + key_rows[None, :] + features[:, None], mask=is_held[None, :] & is_feature[:, None], other=0.0
        )
        scores = tl.dot(queries, keys.to(DOT_DTYPE), input_precision="ieee") * scale_log2
        is_seen = is_held[None, :] & (positions[None, :] <= row_position[:, None])
        if WINDOW is not None:
            is_seen = is_seen & (positions[None, :] > row_position[:, None] - WINDOW)
        scores = tl.where(is_seen, scores, float("-inf"))

        new_maximum = tl.maximum(maximum, tl.max(scores, 1))
        # A row may have seen nothing yet; -inf - -inf would be NaN.
        reference = tl.where(new_maximum == float("-inf"), 0.0, new_maximum)
        shrink = tl.exp2(maximum - reference)
        weights = tl.exp2(scores - reference[:, None])
        total = total * shrink + tl.sum(weights, 1)
        value_rows = block_ids * stride_value_block + inside
        # Masked too, not only weighted by 0: an unused slot may hold NaN.
        values = tl.load(
            value_cache + value_rows[:, None] + features[None, :],
            mask=is_held[:, None] & is_feature[None, :],
            other=0.0,
        )
        weighted = tl.dot(weights.to(values.dtype).to(DOT_DTYPE), values.to(DOT_DTYPE), input_precision="ieee")
        accumulated = accumulated * shrink[:, None] + weighted
        maximum = new_maximum

    result = accumulated / tl.where(total > 0.0, total, 1.0)[:, None]
    target = output + (tokens[:, None] * (NUM_KV_HEADS * GROUP) + heads[:, None]) * HEAD_DIM + features[None, :]
    tl.store(target, result.to(output.dtype.element_ty), mask=is_output)


def attention_prefill(
    query: Tensor,  # [T, H, D]
    key_cache: Tensor,  # [N, K, B, D]
    value_cache: Tensor,  # [N, K, B, D]
    block_tables: Tensor,  # [S, max_blocks] int32
    context_lens: Tensor,  # [S] int32
    cu_seqlens_q: Tensor,  # [S + 1] int32
    max_query_len: int,
    scale: float,
    window: int | None,
) -> Tensor:  # [T, H, D]
    """softmax(Q Kᵀ · scale + mask) V, causal, the mask aligned to the end of each context."""
    check_block_layout(key_cache)
    check_block_layout(value_cache)
    assert query.stride(2) == block_tables.stride(1) == 1, "features and table entries must be contiguous"
    num_tokens, num_heads, head_dim = query.shape
    _, num_kv_heads, block_size, _ = key_cache.shape
    group_size = num_heads // num_kv_heads
    output = torch.empty(num_tokens, num_heads, head_dim, dtype=query.dtype, device=query.device)
    if num_tokens == 0:
        return output
    tiles = prefill_tiles(group_size, head_dim, key_cache.element_size(), is_rocm())
    queries_per_program = tiles.rows // group_size
    prefill_kernel[(triton.cdiv(max_query_len, queries_per_program), num_kv_heads, len(context_lens))](
        query,
        key_cache,
        value_cache,
        block_tables,
        context_lens,
        cu_seqlens_q,
        output,
        scale * LOG2_E,
        query.stride(0),
        query.stride(1),
        key_cache.stride(0),
        value_cache.stride(0),
        block_tables.stride(0),
        NUM_KV_HEADS=num_kv_heads,
        GROUP=group_size,
        HEAD_DIM=head_dim,
        BLOCK_SIZE=block_size,
        WINDOW=window,
        QUERIES=queries_per_program,
        ROWS=tiles.rows,
        TOKENS=tiles.tokens,
        FEATURES=tiles.features,
        DOT_DTYPE=dot_dtype(key_cache.dtype, key_cache.device),
        num_warps=tiles.num_warps,
        num_stages=tiles.num_stages,
    )
    return output
