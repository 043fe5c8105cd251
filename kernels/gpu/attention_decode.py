"""Attention of one query per sequence over its paged context, split over the context (flash-decoding).

A program takes one sequence, one key/value head and SPLIT_TOKENS of the context, and carries the online softmax
(Milakov and Gimelshein 2018; Dao et al. 2022)

    m' = max(m, max s)    l' = l · 2^(m - m') + Σ 2^(s - m')    o' = o · 2^(m - m') + Σ 2^(s - m') v

with s = q k · scale · log2 e. It leaves o / l and lse = m + log2 l; the merge is Σ 2^(lse_i - lse) o_i over the
splits (Dao et al. 2023, flash-decoding). The queries of a group are the rows of one dot, so its heads share each
load of keys and values. Splits are cut by position alone: a row's result doesn't depend on the batch it is in.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from .kv_cache import check_block_layout, locate_tokens
from .tiles import LOG2_E, decode_tiles, dot_dtype, is_rocm

SPLIT_TOKENS = 256  # at a group of 4 in half precision its partial results cost 3 % of what a split reads


@triton.jit
def decode_kernel(
    query,
    key_cache,
    value_cache,
    block_tables,
    context_lens,
    own_starts,  # [S] int32, where each sequence's part begins, if HAS_PREFIX; what is before is read elsewhere
    output,
    split_output,  # [S, H, splits, D] float32
    split_lse,  # [S, H, splits] float32
    scale_log2,
    stride_query_seq,
    stride_query_head,
    stride_key_block,
    stride_value_block,
    stride_table,
    num_splits,
    NUM_KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    WINDOW: tl.constexpr,
    SPLIT: tl.constexpr,
    IS_WHOLE: tl.constexpr,  # one split is all there is: write the output itself
    HAS_PREFIX: tl.constexpr,
    ROWS: tl.constexpr,
    TOKENS: tl.constexpr,
    FEATURES: tl.constexpr,
    DOT_DTYPE: tl.constexpr,
):
    seq = tl.program_id(0).to(tl.int64)
    kv_head = tl.program_id(1)
    split = tl.program_id(2)
    context_len = tl.load(context_lens + seq)
    first_seen = 0
    if WINDOW is not None:
        first_seen = tl.maximum(context_len - WINDOW, 0)
    if HAS_PREFIX:
        first_seen = tl.maximum(first_seen, tl.load(own_starts + seq))
    start = tl.maximum(split * SPLIT, first_seen // TOKENS * TOKENS)
    stop = tl.minimum((split + 1) * SPLIT, context_len)
    if (start >= stop) & (not IS_WHOLE):
        return

    rows = tl.arange(0, ROWS)
    features = tl.arange(0, FEATURES)
    is_feature = features < HEAD_DIM
    is_output = (rows < GROUP)[:, None] & is_feature[None, :]
    heads = kv_head * GROUP + rows
    rows_of_query = query + seq * stride_query_seq + heads[:, None] * stride_query_head
    queries = tl.load(rows_of_query + features[None, :], mask=is_output, other=0.0).to(DOT_DTYPE)

    table = block_tables + seq * stride_table
    maximum = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    accumulated = tl.zeros([ROWS, FEATURES], tl.float32)
    for tile_start in range(start, stop, TOKENS):
        positions = tile_start + tl.arange(0, TOKENS)
        is_seen = positions < stop
        if (WINDOW is not None) or HAS_PREFIX:
            is_seen = is_seen & (positions >= first_seen)
        block_ids, inside = locate_tokens(table, positions, is_seen, kv_head, BLOCK_SIZE, HEAD_DIM)
        key_rows = block_ids * stride_key_block + inside
        keys = tl.load(
            key_cache + key_rows[None, :] + features[:, None], mask=is_seen[None, :] & is_feature[:, None], other=0.0
        )
        scores = tl.dot(queries, keys.to(DOT_DTYPE), input_precision="ieee") * scale_log2
        scores = tl.where(is_seen[None, :], scores, float("-inf"))

        # Each tile holds at least one token that is seen, so the maximum is finite from here on.
        new_maximum = tl.maximum(maximum, tl.max(scores, 1))
        shrink = tl.exp2(maximum - new_maximum)
        weights = tl.exp2(scores - new_maximum[:, None])
        total = total * shrink + tl.sum(weights, 1)
        value_rows = block_ids * stride_value_block + inside
        # Masked too, not only weighted by 0: an unused slot may hold NaN.
        values = tl.load(
            value_cache + value_rows[:, None] + features[None, :],
            mask=is_seen[:, None] & is_feature[None, :],
            other=0.0,
        )
        weighted = tl.dot(weights.to(values.dtype).to(DOT_DTYPE), values.to(DOT_DTYPE), input_precision="ieee")
        accumulated = accumulated * shrink[:, None] + weighted
        maximum = new_maximum

    # A context of 0 is padding: its total is 0 and so is its output.
    result = accumulated / tl.where(total > 0.0, total, 1.0)[:, None]
    num_heads = NUM_KV_HEADS * GROUP
    if IS_WHOLE:
        target = output + (seq * num_heads + heads[:, None]) * HEAD_DIM + features[None, :]
        tl.store(target, result.to(output.dtype.element_ty), mask=is_output)
    else:
        parts = (seq * num_heads + heads) * num_splits + split
        tl.store(split_output + parts[:, None] * HEAD_DIM + features[None, :], result, mask=is_output)
        tl.store(split_lse + parts, maximum + tl.log2(total), mask=rows < GROUP)


@triton.jit
def merge_kernel(
    split_output,  # [S, H, splits, D] float32
    split_lse,  # [S, H, splits] float32
    context_lens,
    output,
    num_splits,
    NUM_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    WINDOW: tl.constexpr,
    SPLIT: tl.constexpr,
    FEATURES: tl.constexpr,
):
    seq = tl.program_id(0).to(tl.int64)
    row = seq * NUM_HEADS + tl.program_id(1)
    features = tl.arange(0, FEATURES)
    is_feature = features < HEAD_DIM
    context_len = tl.load(context_lens + seq)
    first_split = 0
    if WINDOW is not None:
        first_split = tl.maximum(context_len - WINDOW, 0) // SPLIT
    last_split = tl.cdiv(context_len, SPLIT)

    maximum = float("-inf")
    total = 0.0
    accumulated = tl.zeros([FEATURES], tl.float32)
    for split in range(first_split, last_split):
        part = row * num_splits + split
        lse = tl.load(split_lse + part)
        new_maximum = tl.maximum(maximum, lse)
        shrink = tl.exp2(maximum - new_maximum)
        weight = tl.exp2(lse - new_maximum)
        values = tl.load(split_output + part * HEAD_DIM + features, mask=is_feature, other=0.0)
        accumulated = accumulated * shrink + values * weight
        total = total * shrink + weight
        maximum = new_maximum
    result = accumulated / tl.where(total > 0.0, total, 1.0)
    tl.store(output + row * HEAD_DIM + features, result.to(output.dtype.element_ty), mask=is_feature)


def attention_decode(
    query: Tensor,  # [S, H, D]
    key_cache: Tensor,  # [N, K, B, D]
    value_cache: Tensor,  # [N, K, B, D]
    block_tables: Tensor,  # [S, max_blocks] int32
    context_lens: Tensor,  # [S] int32
    scale: float,
    window: int | None,
) -> Tensor:  # [S, H, D]
    """softmax(q Kᵀ · scale) V for each sequence's last token.

    Nothing here waits for the device: the grid covers the whole width of `block_tables`, and programs behind a
    context end at once. Keep the tables as narrow as the longest context.
    """
    check_block_layout(key_cache)
    check_block_layout(value_cache)
    assert query.stride(2) == block_tables.stride(1) == 1, "features and table entries must be contiguous"
    num_seqs, num_heads, head_dim = query.shape
    _, num_kv_heads, block_size, _ = key_cache.shape
    group_size = num_heads // num_kv_heads
    output = torch.empty(num_seqs, num_heads, head_dim, dtype=query.dtype, device=query.device)
    if num_seqs == 0:
        return output
    num_splits = max(1, triton.cdiv(block_tables.shape[1] * block_size, SPLIT_TOKENS))
    is_whole = num_splits == 1
    split_output = output if is_whole else scratch(query, num_seqs, num_heads, num_splits, head_dim)
    split_lse = output if is_whole else scratch(query, num_seqs, num_heads, num_splits)
    tiles = decode_tiles(group_size, head_dim, key_cache.element_size(), is_rocm())
    decode_kernel[(num_seqs, num_kv_heads, num_splits)](
        query,
        key_cache,
        value_cache,
        block_tables,
        context_lens,
        context_lens,
        output,
        split_output,
        split_lse,
        scale * LOG2_E,
        query.stride(0),
        query.stride(1),
        key_cache.stride(0),
        value_cache.stride(0),
        block_tables.stride(0),
        num_splits,
        NUM_KV_HEADS=num_kv_heads,
        GROUP=group_size,
        HEAD_DIM=head_dim,
        BLOCK_SIZE=block_size,
        WINDOW=window,
        SPLIT=SPLIT_TOKENS,
        IS_WHOLE=is_whole,
        HAS_PREFIX=False,
        ROWS=tiles.rows,
        TOKENS=tiles.tokens,
        FEATURES=tiles.features,
        DOT_DTYPE=dot_dtype(key_cache.dtype, key_cache.device),
        num_warps=tiles.num_warps,
        num_stages=tiles.num_stages,
    )
    if not is_whole:
        merge_kernel[(num_seqs, num_heads)](
            split_output,
            split_lse,
            context_lens,
            output,
            num_splits,
            NUM_HEADS=num_heads,
            HEAD_DIM=head_dim,
            WINDOW=window,
            SPLIT=SPLIT_TOKENS,
            FEATURES=tiles.features,
            num_warps=4,
        )
    return output


def scratch(query: Tensor, *shape: int) -> Tensor:
    """Partial results, float32, on the query's device; not yet written."""
    return torch.empty(shape, dtype=torch.float32, device=query.device)
