"""The CPU backend: each function of `Backend`, fast on a processor.

Values of one block are `[num_kv_heads, block_size, head_dim]`. So are its keys, but where the compiled attention reads
them: `[num_kv_heads, head_dim, block_size]` (kv_cache.py).
"""

from .attention import attention_decode, attention_prefill
from .elementwise import rms_norm, rope, silu_mul
from .kv_cache import copy_blocks, kv_block_shapes, write_kv
from .linear import linear
from .prefix_attention import attention_prefix
from .rope_kv import rope_write_kv

name: str = "cpu"

__all__ = [
    "attention_decode",
    "attention_prefill",
    "attention_prefix",
    "copy_blocks",
    "kv_block_shapes",
    "linear",
    "name",
    "rms_norm",
    "rope",
    "rope_write_kv",
    "silu_mul",
    "write_kv",
]
