"""The Triton backend: each function of `Backend` on a CUDA or ROCm device.

On the processor it runs only through triton's interpreter (TRITON_INTERPRET=1 before triton is imported), slowly.
Keys and values of one block are `[num_kv_heads, block_size, head_dim]`.
"""

from .attention_decode import attention_decode
from .attention_prefill import attention_prefill
from .attention_prefix import attention_prefix
from .elementwise import rms_norm, rope, silu_mul
from .kv_cache import copy_blocks, kv_block_shapes, write_kv
from .linear import linear
from .rope_kv import rope_write_kv

name: str = "triton"

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
