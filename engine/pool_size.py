"""How many KV blocks the free memory makes."""

import torch

from .config import EngineConfig
from .model.memory import free_memory

DEFAULT_SHARE_CPU = 0.25
DEFAULT_SHARE_GPU = 0.9
MIN_DEFAULT_BYTES_CPU = 512 * 2**20
MAX_WINDOWS_CPU = 4
UNKNOWN_FREE_BYTES = 4 * 2**30  # where the system doesn't say: what any machine that runs torch can give


def choose_num_blocks(config: EngineConfig, device: torch.device, block_bytes: int, model_window: int) -> int:
    """The pool's size, the null block included.

    num_blocks if given; else as much as kv_memory says. By default a GPU gives most of what is free. A CPU shares its
    memory with other programs: a quarter of what is free, and no more than a few full windows (at least 512 MiB).
    """
    if config.num_blocks is not None:
        return config.num_blocks
    if isinstance(config.kv_memory, int):
        num_bytes = config.kv_memory
    else:
        default_share = DEFAULT_SHARE_GPU if device.type == "cuda" else DEFAULT_SHARE_CPU
        free = free_memory(device)
        num_bytes = int((UNKNOWN_FREE_BYTES if free is None else free) * (config.kv_memory or default_share))
        if config.kv_memory is None and device.type == "cpu":
            windows = (MAX_WINDOWS_CPU * -(-model_window // config.block_size) + 1) * block_bytes
            num_bytes = min(num_bytes, max(windows, MIN_DEFAULT_BYTES_CPU))
    return max(2, num_bytes // block_bytes)
