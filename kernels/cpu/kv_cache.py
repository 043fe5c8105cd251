"""The pool's blocks in memory: their layout, writing new tokens, gathering a context, copying blocks.

A cache is `[num_blocks, num_kv_heads, block_size, head_dim]`, contiguous inside a block and often a strided view
from block to block. Ids and slots are int64 wherever torch multiplies them into an offset.
"""

import torch
from torch import Tensor


def kv_block_shapes(num_kv_heads: int, block_size: int, head_dim: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shapes of the keys and of the values of one block of one layer."""
    return (num_kv_heads, block_size, head_dim), (num_kv_heads, block_size, head_dim)


def write_kv(
    key: Tensor,  # [T, K, D]
    value: Tensor,  # [T, K, D]
    key_cache: Tensor,  # [N, K, B, D]
    value_cache: Tensor,  # [N, K, B, D]
    slot_mapping: Tensor,  # [T] int64
) -> None:
    """Scatters new keys and values into their slots and touches no other byte."""
    block_size = key_cache.shape[2]
    block_ids = torch.div(slot_mapping, block_size, rounding_mode="floor")
    offsets = slot_mapping - block_ids * block_size
    key_cache[block_ids, :, offsets] = key
    value_cache[block_ids, :, offsets] = value


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
