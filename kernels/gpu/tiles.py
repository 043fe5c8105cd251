"""How much of an attention problem one program takes: chosen from shapes alone, so compiling ahead needs no device.

The limit is shared memory: 163 KiB of a block on sm_80, 227 KiB on sm_90 and sm_100, 64 KiB on gfx942. Loads in
flight (stages) each hold a tile of keys and one of values there.
"""

from dataclasses import dataclass, replace

import torch
import triton
import triton.language as tl

DOT_DTYPES = {torch.float16: tl.float16, torch.bfloat16: tl.bfloat16, torch.float32: tl.float32}
LOG2_E = 1.4426950408889634  # exp(x) = exp2(x · log2 e), and exp2 is the instruction a GPU has
MIN_DOT_ROWS = 16  # tl.dot takes no fewer


@dataclass(frozen=True, slots=True)
class Tiles:
    rows: int  # query rows of one dot: a power of two, at least MIN_DOT_ROWS
    tokens: int  # keys of one step of the loop
    features: int  # head_dim, padded to a power of two
    num_warps: int
    num_stages: int


def is_rocm() -> bool:
    return torch.version.hip is not None


def decode_tiles(group_size: int, head_dim: int, element_bytes: int, rocm: bool) -> Tiles:
    """Decode waits for memory: few rows, and as many loads in flight as fit."""
    features = triton.next_power_of_2(head_dim)
    token_bytes = features * element_bytes
    return Tiles(
        rows=max(MIN_DOT_ROWS, triton.next_power_of_2(group_size)),
        tokens=64 if token_bytes <= 256 else 32 if token_bytes <= 512 else 16,
        features=features,
        num_warps=4,
        num_stages=2 if rocm else 3,
    )


def prefill_tiles(group_size: int, head_dim: int, element_bytes: int, rocm: bool) -> Tiles:
    """Prefill waits for arithmetic: many rows share each tile of keys.

    Exact float32 has no tensor cores; its products are unrolled, so larger tiles only compile for longer.
    """
    features = triton.next_power_of_2(head_dim)
    token_bytes = features * element_bytes
    if element_bytes == 2 and token_bytes <= 256:
        rows, tokens = 128, 64
    elif token_bytes <= 512:
        rows, tokens = 64, 32
    else:
        rows, tokens = 32, 16
    return Tiles(
        rows=max(rows, triton.next_power_of_2(group_size)),
        tokens=tokens,
        features=features,
        num_warps=8 if rows * features >= 128 * 128 else 4,
        num_stages=1 if rocm else 2,
    )


def dot_dtype(dtype: torch.dtype, device: torch.device) -> tl.dtype:
    """The type that goes into tl.dot: the cache's own, but float32 on the processor.

    Triton's interpreter keeps bfloat16 as the bits of an integer and would multiply those.
    """
    return tl.float32 if device.type == "cpu" else DOT_DTYPES[dtype]


def prefix_tiles(group_size: int, head_dim: int, element_bytes: int, rocm: bool) -> Tiles:
    """As prefill, but for the few rows that decode together: eight sequences of four heads fill a tile."""
    tiles = prefill_tiles(group_size, head_dim, element_bytes, rocm)
    return replace(tiles, rows=max(min(tiles.rows, 32), triton.next_power_of_2(group_size)), num_warps=4)
