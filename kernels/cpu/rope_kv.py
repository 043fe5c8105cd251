"""Rotary embedding, then the write of new keys and values: two calls, for the rows stay in the processor's caches."""

from torch import Tensor

from .elementwise import rope
from .kv_cache import write_kv


def rope_write_kv(
    query: Tensor,  # [T, H, D]
    key: Tensor,  # [T, K, D]
    value: Tensor,  # [T, K, D]
    positions: Tensor,  # [T] int64
    cos: Tensor,  # [max_position, R / 2] float32
    sin: Tensor,  # [max_position, R / 2] float32
    key_cache: Tensor,  # [N, *key block shape]
    value_cache: Tensor,  # [N, *value block shape]
    slot_mapping: Tensor,  # [T] int64
) -> None:
    """Rotates queries and keys in place, then writes the keys and the values into their slots."""
    rope(query, key, positions, cos, sin)
    write_kv(key, value, key_cache, value_cache, slot_mapping)
