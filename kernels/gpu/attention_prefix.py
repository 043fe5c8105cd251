"""Attention of one query per sequence, where sequences share blocks: those are read once for all of them.

A program takes a segment of blocks, one key/value head, and the queries of up to ROWS / GROUP sequences that share the
segment, and leaves o / l and lse = m + log2 l for each of them, as a split of decode attention does
(attention_decode.py). What a sequence has of its own goes through that kernel, and the merge is the same sum over both,
Σ 2^(lse_i - lse) o_i.
"""

from functools import lru_cache

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from ..prefix_plan import plan_prefixes
from ..shared_run import SharedRun
from .attention_decode import SPLIT_TOKENS, attention_decode, decode_kernel, scratch
from .kv_cache import check_block_layout, locate_tokens
from .tiles import LOG2_E, decode_tiles, dot_dtype, is_rocm, prefix_tiles


@triton.jit
def prefix_kernel(
    query,
    key_cache,
    value_cache,
    block_tables,
    context_lens,
    segments,  # [segments, 4] int32: first block, end, first member, number of members
    members,  # [members, 2] int32: a sequence, and its part of this segment
    part_output,  # [parts, H, D] float32
    part_lse,  # [parts, H] float32
    scale_log2,
    stride_query_seq,
    stride_query_head,
    stride_key_block,
    stride_value_block,
    stride_table,
    NUM_KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    WINDOW: tl.constexpr,
    ROWS: tl.constexpr,
    TOKENS: tl.constexpr,
    FEATURES: tl.constexpr,
    DOT_DTYPE: tl.constexpr,
):
    segment = segments + tl.program_id(0) * 4
    kv_head = tl.program_id(1)
    start = tl.load(segment) * BLOCK_SIZE
    stop = tl.load(segment + 1) * BLOCK_SIZE
    first_member = members + tl.load(segment + 2) * 2
    num_members = tl.load(segment + 3)

    rows = tl.arange(0, ROWS)
    is_row = rows // GROUP < num_members
    member = first_member + rows // GROUP * 2
    seqs = tl.load(member, mask=is_row, other=0).to(tl.int64)
    parts = tl.load(member + 1, mask=is_row, other=0).to(tl.int64)
    heads = kv_head * GROUP + rows % GROUP
    features = tl.arange(0, FEATURES)
    is_feature = features < HEAD_DIM
    is_output = is_row[:, None] & is_feature[None, :]
    rows_of_query = query + seqs[:, None] * stride_query_seq + heads[:, None] * stride_query_head
    queries = tl.load(rows_of_query + features[None, :], mask=is_output, other=0.0).to(DOT_DTYPE)

    table = block_tables + tl.load(first_member).to(tl.int64) * stride_table
    maximum = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    accumulated = tl.zeros([ROWS, FEATURES], tl.float32)
    for tile_start in range(start, stop, TOKENS):
        positions = tile_start + tl.arange(0, TOKENS)
        is_there = positions < stop
        block_ids, inside = locate_tokens(table, positions, is_there, kv_head, BLOCK_SIZE, HEAD_DIM)
        key_rows = block_ids * stride_key_block + inside
        keys = tl.load(
            key_cache + key_rows[None, :] + features[:, None], mask=is_there[None, :] & is_feature[:, None], other=0.0
        )
        scores = tl.dot(queries, keys.to(DOT_DTYPE), input_precision="ieee") * scale_log2
        is_seen = is_there[None, :] & is_row[:, None]
        if WINDOW is not None:
            first_seen = tl.load(context_lens + seqs, mask=is_row, other=0) - WINDOW
            is_seen = is_seen & (positions[None, :] >= first_seen[:, None])
        scores = tl.where(is_seen, scores, float("-inf"))

        new_maximum = tl.maximum(maximum, tl.max(scores, 1))
        # A row that has seen nothing yet has no maximum, and a difference of two infinities is no number.
        top = tl.where(new_maximum > float("-inf"), new_maximum, 0.0)
        shrink = tl.exp2(maximum - top)
        weights = tl.exp2(scores - top[:, None])
        total = total * shrink + tl.sum(weights, 1)
        value_rows = block_ids * stride_value_block + inside
        values = tl.load(
            value_cache + value_rows[:, None] + features[None, :],
            mask=is_there[:, None] & is_feature[None, :],
            other=0.0,
        )
        weighted = tl.dot(weights.to(values.dtype).to(DOT_DTYPE), values.to(DOT_DTYPE), input_precision="ieee")
        accumulated = accumulated * shrink[:, None] + weighted
        maximum = new_maximum

    result = accumulated / tl.where(total > 0.0, total, 1.0)[:, None]
    lse = tl.where(total > 0.0, maximum + tl.log2(tl.where(total > 0.0, total, 1.0)), float("-inf"))
    targets = parts * (NUM_KV_HEADS * GROUP) + heads
    tl.store(part_output + targets[:, None] * HEAD_DIM + features[None, :], result, mask=is_output)
    tl.store(part_lse + targets, lse, mask=is_row)


@triton.jit
def merge_prefix_kernel(
    split_output,  # [S, H, splits, D] float32
    split_lse,  # [S, H, splits] float32
    part_output,  # [parts, H, D] float32
    part_lse,  # [parts, H] float32
    part_starts,  # [S + 1] int32
    own_starts,  # [S] int32
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
    head = tl.program_id(1)
    row = seq * NUM_HEADS + head
    features = tl.arange(0, FEATURES)
    is_feature = features < HEAD_DIM
    context_len = tl.load(context_lens + seq)
    first_seen = tl.load(own_starts + seq)
    if WINDOW is not None:
        first_seen = tl.maximum(first_seen, context_len - WINDOW)

    # Its own splits first: each has seen something, so the maximum is finite before parts that may have seen nothing.
    maximum = float("-inf")
    total = 0.0
    accumulated = tl.zeros([FEATURES], tl.float32)
    for split in range(first_seen // SPLIT, tl.cdiv(context_len, SPLIT)):
        place = row * num_splits + split
        lse = tl.load(split_lse + place)
        new_maximum = tl.maximum(maximum, lse)
        shrink = tl.exp2(maximum - new_maximum)
        weight = tl.exp2(lse - new_maximum)
        values = tl.load(split_output + place * HEAD_DIM + features, mask=is_feature, other=0.0)
        accumulated = accumulated * shrink + values * weight
        total = total * shrink + weight
        maximum = new_maximum
    first_part = tl.load(part_starts + seq).to(tl.int64)
    for part in range(tl.load(part_starts + seq + 1) - tl.load(part_starts + seq)):
        place = (first_part + part) * NUM_HEADS + head
        lse = tl.load(part_lse + place)
        new_maximum = tl.maximum(maximum, lse)
        shrink = tl.exp2(maximum - new_maximum)
        weight = tl.exp2(lse - new_maximum)
        values = tl.load(part_output + place * HEAD_DIM + features, mask=is_feature, other=0.0)
        accumulated = accumulated * shrink + values * weight
        total = total * shrink + weight
        maximum = new_maximum
    result = accumulated / tl.where(total > 0.0, total, 1.0)
    tl.store(output + row * HEAD_DIM + features, result.to(output.dtype.element_ty), mask=is_feature)


def attention_prefix(
    query: Tensor,  # [S, H, D]
    key_cache: Tensor,  # [N, K, B, D]
    value_cache: Tensor,  # [N, K, B, D]
    block_tables: Tensor,  # [S, max_blocks] int32
    context_lens: Tensor,  # [S] int32
    scale: float,
    window: int | None,
    runs: tuple[SharedRun, ...],
) -> Tensor:  # [S, H, D]
    """`attention_decode`, with the runs' blocks read once for all sequences that share them."""
    if not runs:
        return attention_decode(query, key_cache, value_cache, block_tables, context_lens, scale, window)
    check_block_layout(key_cache)
    check_block_layout(value_cache)
    assert query.stride(2) == block_tables.stride(1) == 1, "features and table entries must be contiguous"
    num_seqs, num_heads, head_dim = query.shape
    _, num_kv_heads, block_size, _ = key_cache.shape
    group_size = num_heads // num_kv_heads
    tiles = prefix_tiles(group_size, head_dim, key_cache.element_size(), is_rocm())
    segments, members, own_starts, part_starts = _plan_on(
        query.device, runs, num_seqs, block_size, tiles.rows // group_size, max(1, SPLIT_TOKENS // block_size)
    )
    part_output = scratch(query, len(members), num_heads, head_dim)
    part_lse = scratch(query, len(members), num_heads)
    strides = (
        query.stride(0), query.stride(1), key_cache.stride(0), value_cache.stride(0), block_tables.stride(0)
    )  # fmt: skip
    sizes = {
        "NUM_KV_HEADS": num_kv_heads,
        "GROUP": group_size,
        "HEAD_DIM": head_dim,
        "BLOCK_SIZE": block_size,
        "WINDOW": window,
        "DOT_DTYPE": dot_dtype(key_cache.dtype, key_cache.device),
    }
    prefix_kernel[(len(segments), num_kv_heads)](
        query,
        key_cache,
        value_cache,
        block_tables,
        context_lens,
        segments,
        members,
        part_output,
        part_lse,
        scale * LOG2_E,
        *strides,
        **sizes,
        ROWS=tiles.rows,
        TOKENS=tiles.tokens,
        FEATURES=tiles.features,
        num_warps=tiles.num_warps,
        num_stages=tiles.num_stages,
    )
    num_splits = triton.cdiv(block_tables.shape[1] * block_size, SPLIT_TOKENS)
    split_output = scratch(query, num_seqs, num_heads, num_splits, head_dim)
    split_lse = scratch(query, num_seqs, num_heads, num_splits)
    output = torch.empty(num_seqs, num_heads, head_dim, dtype=query.dtype, device=query.device)
    own = decode_tiles(group_size, head_dim, key_cache.element_size(), is_rocm())
    decode_kernel[(num_seqs, num_kv_heads, num_splits)](
        query,
        key_cache,
        value_cache,
        block_tables,
        context_lens,
        own_starts,
        output,
        split_output,
        split_lse,
        scale * LOG2_E,
        *strides,
        num_splits,
        **sizes,
        SPLIT=SPLIT_TOKENS,
        IS_WHOLE=False,
        HAS_PREFIX=True,
        ROWS=own.rows,
        TOKENS=own.tokens,
        FEATURES=own.features,
        num_warps=own.num_warps,
        num_stages=own.num_stages,
    )
    merge_prefix_kernel[(num_seqs, num_heads)](
        split_output,
        split_lse,
        part_output,
        part_lse,
        part_starts,
        own_starts,
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


@lru_cache(maxsize=8)
def _plan_on(
    device: torch.device,
    runs: tuple[SharedRun, ...],
    num_seqs: int,
    block_size: int,
    most_members: int,
    segment_blocks: int,
) -> tuple[Tensor, ...]:
    """segments, members, own_starts [S], part_starts [S + 1], int32: copied once for all layers and the next steps."""
    plan = plan_prefixes(runs, num_seqs, block_size, most_members, segment_blocks)
    arrays = (plan.segments, plan.members, plan.own_starts[1], plan.part_starts[1])
    return tuple(torch.from_numpy(array.astype(np.int32)).to(device) for array in arrays)
