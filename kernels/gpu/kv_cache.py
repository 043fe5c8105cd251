"""The pool's blocks on the device: their layout, writing new tokens, copying blocks.

A cache is `[num_blocks, num_kv_heads, block_size, head_dim]`, contiguous inside a block; the stride from block to
block is passed on its own, because a block of one layer is often a slice of something larger. Pools pass 2^31
elements, so block ids are int64 before they are multiplied.
"""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

COPY_ELEMENTS = 2048  # of one block, by one program


def kv_block_shapes(num_kv_heads: int, block_size: int, head_dim: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shapes of the keys and of the values of one block of one layer."""
    return (num_kv_heads, block_size, head_dim), (num_kv_heads, block_size, head_dim)


def check_block_layout(cache: Tensor) -> None:
    """The kernels know one layout of [N, K, B, D]: any stride from block to block, contiguous inside."""
    _, _, block_size, head_dim = cache.shape
    assert cache.stride()[1:] == (block_size * head_dim, head_dim, 1), "a block must be contiguous inside"


@triton.jit
def locate_tokens(
    block_table,  # pointer to one sequence's row
    positions,  # [tokens]
    is_held,  # [tokens] whether the position lies in the context
    kv_head,
    BLOCK_SIZE: tl.constexpr,
    HEAD_DIM: tl.constexpr,
):
    """Where one head of each position lies: its block id (int64) and the offset of its row inside the block."""
    block_ids = tl.load(block_table + positions // BLOCK_SIZE, mask=is_held, other=0).to(tl.int64)
    return block_ids, (kv_head * BLOCK_SIZE + positions % BLOCK_SIZE) * HEAD_DIM


@triton.jit
def write_kv_kernel(
    key,
    value,
    key_cache,
    value_cache,
    slot_mapping,
    stride_key_token,
    stride_key_head,
    stride_value_token,
    stride_value_head,
    stride_key_block,
    stride_value_block,
    NUM_KV_HEADS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PADDED: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    slot = tl.load(slot_mapping + token).to(tl.int64)
    block_id = slot // BLOCK_SIZE
    features = tl.arange(0, PADDED)
    is_real = features < NUM_KV_HEADS * HEAD_DIM
    head, feature = features // HEAD_DIM, features % HEAD_DIM
    inside = (head * BLOCK_SIZE + slot % BLOCK_SIZE) * HEAD_DIM + feature
    new_key = tl.load(key + token * stride_key_token + head * stride_key_head + feature, mask=is_real)
    new_value = tl.load(value + token * stride_value_token + head * stride_value_head + feature, mask=is_real)
    tl.store(key_cache + block_id * stride_key_block + inside, new_key, mask=is_real)
    tl.store(value_cache + block_id * stride_value_block + inside, new_value, mask=is_real)


def write_kv(
    key: Tensor,  # [T, K, D]
    value: Tensor,  # [T, K, D]
    key_cache: Tensor,  # [N, K, B, D]
    value_cache: Tensor,  # [N, K, B, D]
    slot_mapping: Tensor,  # [T] int64
) -> None:
    """Scatters new keys and values into their slots and touches no other byte; one program a token."""
    check_block_layout(key_cache)
    check_block_layout(value_cache)
    assert key.stride(2) == value.stride(2) == 1, "a head's features must be contiguous"
    num_tokens, num_kv_heads, head_dim = key.shape
    if num_tokens == 0:
        return
    write_kv_kernel[(num_tokens,)](
        key,
        value,
        key_cache,
        value_cache,
        slot_mapping,
        key.stride(0),
        key.stride(1),
        value.stride(0),
        value.stride(1),
        key_cache.stride(0),
        value_cache.stride(0),
        NUM_KV_HEADS=num_kv_heads,
        BLOCK_SIZE=key_cache.shape[2],
        HEAD_DIM=head_dim,
        PADDED=triton.next_power_of_2(num_kv_heads * head_dim),
        num_warps=4,
    )


@triton.jit
def copy_blocks_kernel(
    read_cache,
    write_cache,
    read_blocks,
    write_blocks,
    stride_read_block,
    stride_write_block,
    num_elements,
    ELEMENTS: tl.constexpr,
):
    pair = tl.program_id(0)
    read_block = tl.load(read_blocks + pair).to(tl.int64)
    write_block = tl.load(write_blocks + pair).to(tl.int64)
    elements = tl.program_id(1) * ELEMENTS + tl.arange(0, ELEMENTS)
    is_real = elements < num_elements
    moved = tl.load(read_cache + read_block * stride_read_block + elements, mask=is_real)
    tl.store(write_cache + write_block * stride_write_block + elements, moved, mask=is_real)


def copy_blocks(
    cache: Tensor,  # [N, ...]
    source: Tensor,  # [C] int64
    destination: Tensor,  # [C] int64
) -> None:
    """Copies whole blocks; all sources are read before any destination is written."""
    num_pairs = source.shape[0]
    if num_pairs == 0:
        return
    num_elements = math.prod(cache.shape[1:])
    assert cache[0].is_contiguous(), "a block must be contiguous inside"
    if num_pairs == 1:
        _launch_copy(cache, cache, source, destination, num_elements)
        return
    # A destination may be another pair's source. Looking whether one is would wait for the device; a copy of the
    # few blocks that part at once costs less.
    staged = torch.empty(num_pairs, *cache.shape[1:], dtype=cache.dtype, device=cache.device)
    rows = torch.arange(num_pairs, device=cache.device)
    _launch_copy(cache, staged, source, rows, num_elements)
    _launch_copy(staged, cache, rows, destination, num_elements)


def _launch_copy(
    read_cache: Tensor, write_cache: Tensor, read_blocks: Tensor, write_blocks: Tensor, num_elements: int
) -> None:
    copy_blocks_kernel[(read_blocks.shape[0], triton.cdiv(num_elements, COPY_ELEMENTS))](
        read_cache,
        write_cache,
        read_blocks,
        write_blocks,
        read_cache.stride(0),
        write_cache.stride(0),
        num_elements,
        ELEMENTS=COPY_ELEMENTS,
        num_warps=4,
    )
