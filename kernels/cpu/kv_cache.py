"""The pool's blocks in memory: their layout, writing new tokens, gathering a context, copying blocks.

Inside a block of one layer values are [K, B, D]. Keys are [K, D, B] where the compiled attention can run, so that the
16 tokens of a block are the lanes of a vector, and [K, B, D] elsewhere. Blocks are contiguous inside and often a
strided view from one to the next. Ids and slots are int64 wherever they are multiplied into an offset.
"""

import torch
from torch import Tensor

LANES = 16


def is_vectorised(block_size: int, head_dim: int) -> bool:
    """Whether blocks of this shape have the layout that the compiled attention reads."""
    return block_size == LANES and head_dim % LANES == 0


def kv_block_shapes(num_kv_heads: int, block_size: int, head_dim: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shapes of the keys and of the values of one block of one layer."""
    rows = (num_kv_heads, block_size, head_dim)
    return ((num_kv_heads, head_dim, block_size) if is_vectorised(block_size, head_dim) else rows), rows


def write_kv(
    key: Tensor,  # [T, K, D]
    value: Tensor,  # [T, K, D]
    key_cache: Tensor,  # [N, K, D, B] or [N, K, B, D]
    value_cache: Tensor,  # [N, K, B, D]
    slot_mapping: Tensor,  # [T] int64
) -> None:
    """Scatters new keys and values into their slots and touches no other byte."""
    _, _, block_size, head_dim = value_cache.shape
    block_ids = torch.div(slot_mapping, block_size, rounding_mode="floor")
    offsets = slot_mapping - block_ids * block_size
    if is_vectorised(block_size, head_dim):
        key_cache[block_ids, :, :, offsets] = key
    else:
        key_cache[block_ids, :, offsets] = key
    value_cache[block_ids, :, offsets] = value


def gather_keys(
    key_cache: Tensor,  # [N, K, D, B] or [N, K, B, D]
    block_ids: Tensor,  # [S, C] int64
    head_dim: int,
) -> Tensor:  # [S, K, C * B, D]
    """The keys of S block tables as rows, head by head, in memory of their own."""
    if not is_vectorised(key_cache.shape[2] * key_cache.shape[3] // head_dim, head_dim):
        return gather_blocks(key_cache, block_ids)
    num_seqs, num_columns = block_ids.shape
    gathered = key_cache[block_ids]  # [S, C, K, D, B]
    rows = gathered.permute(0, 2, 1, 4, 3)
    return rows.reshape(num_seqs, key_cache.shape[1], num_columns * key_cache.shape[3], head_dim)


def gather_blocks(
    cache: Tensor,  # [N, K, B, D]
    block_ids: Tensor,  # [S, C] int64
) -> Tensor:  # [S, K, C * B, D]
    """The tokens of S block tables as rows, head by head, in memory of their own."""
    _, num_kv_heads, block_size, head_dim = cache.shape
    num_seqs, num_columns = block_ids.shape
    gathered = torch.empty(num_kv_heads, block_ids.numel(), block_size, head_dim, dtype=cache.dtype)
    flat_ids = block_ids.reshape(-1)
    # One index_select a head copies whole [block_size, head_dim] pieces to where attention wants them; one for
    # all heads would need a transposing copy after it, which takes longer than the gather itself.
    for head_cache, head_rows in zip(cache.unbind(1), gathered.unbind(0), strict=True):
        torch.index_select(head_cache, 0, flat_ids, out=head_rows)
    return gathered.view(num_kv_heads, num_seqs, num_columns * block_size, head_dim).transpose(0, 1)


def copy_blocks(
    cache: Tensor,  # [N, ...]
    source: Tensor,  # [C] int64
    destination: Tensor,  # [C] int64
) -> None:
    """Copies whole blocks through a temporary, so all sources are read before any destination is written."""
    cache.index_copy_(0, destination, cache.index_select(0, source))
