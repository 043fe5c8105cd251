"""Rotary embedding and the write of new keys and values, in one pass.

A program takes one token and one key/value head: it rotates the queries of the head's group in place, and its key on
the way into the token's slot. Feature i is paired with i + R / 2 (Su et al. 2021, GPT-NeoX order):

    x'_i = x_i cos - x_{i + R/2} sin        x'_{i + R/2} = x_{i + R/2} cos + x_i sin

Against rope and then write_kv this saves a launch, and the keys' way to memory and back.
"""

import triton
import triton.language as tl
from torch import Tensor

from .elementwise import rotate_heads
from .kv_cache import check_block_layout


@triton.jit
def rope_write_kv_kernel(
    query,
    key,
    value,
    positions,
    cos,
    sin,
    key_cache,
    value_cache,
    slot_mapping,
    stride_query_token,
    stride_query_head,
    stride_key_token,
    stride_key_head,
    stride_value_token,
    stride_value_head,
    stride_key_block,
    stride_value_block,
    GROUP: tl.constexpr,
    PADDED_GROUP: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    FEATURES: tl.constexpr,  # HEAD_DIM, padded to a power of two
    HALF: tl.constexpr,  # R / 2
    PADDED_HALF: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    kv_head = tl.program_id(1)
    position = tl.load(positions + token).to(tl.int64)
    slot = tl.load(slot_mapping + token).to(tl.int64)
    half = tl.arange(0, PADDED_HALF)
    is_half = half < HALF
    row_cos = tl.load(cos + position * HALF + half, mask=is_half, other=0.0)
    row_sin = tl.load(sin + position * HALF + half, mask=is_half, other=0.0)

    group_query = query + token * stride_query_token + kv_head * GROUP * stride_query_head
    rotate_heads(group_query, stride_query_head, row_cos, row_sin, HALF, PADDED_HALF, GROUP, PADDED_GROUP)

    row_in_block = (kv_head * BLOCK_SIZE + slot % BLOCK_SIZE) * HEAD_DIM
    new_key = key + token * stride_key_token + kv_head * stride_key_head
    key_row = key_cache + slot // BLOCK_SIZE * stride_key_block + row_in_block
    first = tl.load(new_key + half, mask=is_half, other=0.0).to(tl.float32)
    second = tl.load(new_key + HALF + half, mask=is_half, other=0.0).to(tl.float32)
    dtype = key_cache.dtype.element_ty
    tl.store(key_row + half, (first * row_cos - second * row_sin).to(dtype), mask=is_half)
    tl.store(key_row + HALF + half, (second * row_cos + first * row_sin).to(dtype), mask=is_half)

    features = tl.arange(0, FEATURES)
    is_feature = features < HEAD_DIM
    if 2 * HALF < HEAD_DIM:
        is_kept = is_feature & (features >= 2 * HALF)
        tl.store(key_row + features, tl.load(new_key + features, mask=is_kept), mask=is_kept)
    new_value = value + token * stride_value_token + kv_head * stride_value_head
    value_row = value_cache + slot // BLOCK_SIZE * stride_value_block + row_in_block
    tl.store(value_row + features, tl.load(new_value + features, mask=is_feature), mask=is_feature)


def rope_write_kv(
    query: Tensor,  # [T, H, D]
    key: Tensor,  # [T, K, D]
    value: Tensor,  # [T, K, D]
    positions: Tensor,  # [T] int64
    cos: Tensor,  # [max_position, R / 2] float32
    sin: Tensor,  # [max_position, R / 2] float32
    key_cache: Tensor,  # [N, K, B, D]
    value_cache: Tensor,  # [N, K, B, D]
    slot_mapping: Tensor,  # [T] int64
) -> None:
    """Rotates the queries in place, and writes rotated keys and values into their slots; `key` stays as it is."""
    check_block_layout(key_cache)
    check_block_layout(value_cache)
    assert query.stride(2) == key.stride(2) == value.stride(2) == 1, "a head's features must be contiguous"
    assert cos.stride() == sin.stride() == (cos.shape[1], 1), "the tables must be contiguous"
    num_tokens, num_heads, head_dim = query.shape
    num_kv_heads, half = key.shape[1], cos.shape[1]
    if num_tokens == 0:
        return
    group_size = num_heads // num_kv_heads
    padded_group, padded_half = triton.next_power_of_2(group_size), triton.next_power_of_2(half)
    rope_write_kv_kernel[(num_tokens, num_kv_heads)](
        query,
        key,
        value,
        positions,
        cos,
        sin,
        key_cache,
        value_cache,
        slot_mapping,
        query.stride(0),
        query.stride(1),
        key.stride(0),
        key.stride(1),
        value.stride(0),
        value.stride(1),
        key_cache.stride(0),
        value_cache.stride(0),
        GROUP=group_size,
        PADDED_GROUP=padded_group,
        BLOCK_SIZE=key_cache.shape[2],
        HEAD_DIM=head_dim,
        FEATURES=triton.next_power_of_2(head_dim),
        HALF=half,
        PADDED_HALF=padded_half,
        num_warps=num_warps(padded_group, padded_half),
    )


def num_warps(padded_group: int, padded_half: int) -> int:
    """Most programs hold few numbers; a warp for each 256 pairs of features keeps its threads busy."""
    return min(4, max(1, padded_group * padded_half // 256))
