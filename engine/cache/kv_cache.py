"""The bytes of the pool: one tensor, in which a layer's blocks follow one another."""

import torch
from torch import Tensor

from paged_chat.kernels.backend import Backend

from ..errors import OutOfMemory


def block_bytes(num_layers: int, num_kv_heads: int, head_dim: int, block_size: int, dtype: torch.dtype) -> int:
    """Bytes that one block takes over all layers, keys and values together."""
    return 2 * num_layers * num_kv_heads * head_dim * block_size * dtype.itemsize


class KVCache:
    """Keys and values of `num_blocks` blocks, [num_layers, num_blocks, 2, elements of a block].

    A layer's blocks lie together, for attention reads one layer at a time: the blocks of a chat that was alone in the
    pool are read as one stretch. Keys and values of a block are neighbours, since both are read. What lies inside a
    block is the backend's own order.
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
            self.pool = torch.empty((num_layers, num_blocks, 2, num_elements), dtype=dtype, device=device)
        except (RuntimeError, MemoryError) as error:
            size = num_blocks * block_bytes(num_layers, num_kv_heads, head_dim, block_size, dtype)
            raise OutOfMemory(
                f"a pool of {num_blocks} blocks takes {size / 2**20:,.0f} MiB, more than can be had: "
                "lower num_blocks (--num-blocks) or kv_memory"
            ) from error
        self.key_caches: list[Tensor] = [layer[:, 0].view(num_blocks, *key_shape) for layer in self.pool]
        self.value_caches: list[Tensor] = [layer[:, 1].view(num_blocks, *value_shape) for layer in self.pool]

    @property
    def num_blocks(self) -> int:
        return self.pool.shape[1]

    @property
    def block_bytes(self) -> int:
        """Bytes that one block takes over all layers."""
        return self.pool.nbytes // self.num_blocks

    def copy_blocks(self, copies: tuple[tuple[int, int], ...]) -> None:
        """Copies whole blocks, (source, destination); all sources are read before anything is written."""
        source, destination = torch.tensor(copies, dtype=torch.int64, device=self.pool.device).unbind(dim=1)
        for layer in self.pool:
            self._backend.copy_blocks(layer, source, destination)
