"""The bytes of the pool: one tensor, a block of all layers in one piece."""

import torch
from torch import Tensor

from paged_chat.kernels.backend import Backend

from ..errors import OutOfMemory


def block_bytes(num_layers: int, num_kv_heads: int, head_dim: int, block_size: int, dtype: torch.dtype) -> int:
    """Bytes that one block takes over all layers, keys and values together."""
    return 2 * num_layers * num_kv_heads * head_dim * block_size * dtype.itemsize


class KVCache:
    """Keys and values of `num_blocks` blocks, [num_blocks, num_layers, 2, elements of a block].

    A block's keys and values of all layers lie next to each other, so copying one is a single contiguous copy. What
    lies inside a block is the backend's own order.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        num_layers: int,
        num_blocks: int,
        num_kv_heads: int,
        block_size: int,
        head_dim: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        key_shape, value_shape = backend.kv_block_shapes(num_kv_heads, block_size, head_dim)
        num_elements = num_kv_heads * block_size * head_dim
        self._backend = backend
        try:
            # Left as it comes: attention masks what no token has written, and untouched pages cost no memory.
            self.pool = torch.empty((num_blocks, num_layers, 2, num_elements), dtype=dtype, device=device)
        except (RuntimeError, MemoryError) as error:
            size = num_blocks * block_bytes(num_layers, num_kv_heads, head_dim, block_size, dtype)
            raise OutOfMemory(
                f"a pool of {num_blocks} blocks takes {size / 2**20:,.0f} MiB, more than can be had: "
                f"lower num_blocks or kv_memory ({error})"
            ) from error
        self.key_caches: list[Tensor] = [
            self.pool[:, layer, 0].view(num_blocks, *key_shape) for layer in range(num_layers)
        ]
        self.value_caches: list[Tensor] = [
            self.pool[:, layer, 1].view(num_blocks, *value_shape) for layer in range(num_layers)
        ]

    def copy_blocks(self, copies: tuple[tuple[int, int], ...]) -> None:
        """Copies whole blocks, (source, destination); all sources are read before anything is written."""
        source, destination = torch.tensor(copies, dtype=torch.int64, device=self.pool.device).unbind(dim=1)
        self._backend.copy_blocks(self.pool, source, destination)
