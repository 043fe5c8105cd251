"""Packed linear layers for many rows of activations, by matrix tiles.

32 outputs at a time: their weights are unpacked into tiles of bfloat16, which stay in the core's cache while all rows
are multiplied with them (amx_strip.py). Unpacking costs as much as some 30 rows, so this pays for many rows; for few,
and where there are no tiles, packed_linear.py serves.
"""

import numpy as np
from numba import literally

from . import amx
from .amx import COLUMNS, ROWS, TILE_BYTES
from .amx_layout import num_parts_of, row_address
from .amx_strip import (
    ONTO_OUTPUT,
    STRIP,
    STRIP_STRIDE,
    gate_rows,
    multiply_gating,
    multiply_rows,
    unpack_strip,
)
from .simd import LANES, compiled
from .work_sharing import items_ahead

BLOCK_BYTES = 5 << 17  # of activations that a strip is multiplied with before the next: they stay in a core's cache
CHUNK_GROUPS = 20  # of a strip, 2 KB each: they stay in the nearest cache while what they are multiplied with passes


def count_blocks(num_rows: int, num_columns: int, num_outputs: int, terms: int, num_threads: int) -> int:
    """Into how many blocks of rows a product is cut: each fits a core's cache, and every thread finds some work."""
    row_groups = -(-num_rows // ROWS)
    num_bytes = row_groups * ROWS * num_columns * 2 * amx.parts(terms)
    num_strips = -(-num_outputs // (STRIP * LANES))
    wanted = max(-(-num_bytes // BLOCK_BYTES), -(-4 * num_threads // num_strips))
    return max(1, min(wanted, row_groups // 2))


@compiled()
def _count_chunks(num_groups, num_row_groups, terms):  # type: ignore[no-untyped-def]
    """Into how many chunks of columns a product onto its output is cut."""
    if num_row_groups < 8:  # so few rows wouldn't pay for reading and writing the output again
        return 1
    return max(1, -(-num_groups * num_parts_of(terms) // CHUNK_GROUPS))


@compiled()
def add_linear(  # type: ignore[no-untyped-def]
    terms, bits, counters, stage, num_blocks, packed, bias, activations, first_group, num_rows, strip_weights, total
):
    """One layer for the rows from 16 `first_group` on, added to the residual sum; the threads share strips and blocks.

    packed: uint8 [tiles, groups, group_bytes], an even number of tiles; bias: float32 [out] or [0]; activations:
    address of the tiles; strip_weights: scratch of this thread, uint8 [at least groups · STRIP · parts · 1024], on a
    cache line; total: float32 [rows padded to 16, out].
    """
    literally(terms)
    literally(bits)
    num_strips, num_groups = packed.shape[0] // STRIP, packed.shape[1]
    num_row_groups = (num_rows + ROWS - 1) // ROWS - first_group
    part_bytes = np.uint64(num_parts_of(terms) * TILE_BYTES)
    packed_at, tile_bytes = np.uint64(packed.ctypes.data), np.uint64(packed.strides[0])
    group_step, total_step = np.uint64(num_groups) * part_bytes, np.uint64(total.strides[0])
    total_at, weights_at = np.uint64(total.ctypes.data), np.uint64(strip_weights.ctypes.data)
    num_chunks = _count_chunks(num_groups, num_row_groups // num_blocks, terms)
    for item, following in items_ahead(counters, stage, num_blocks * num_strips, 1):
        block, strip = item // num_strips, item % num_strips
        unpack_strip(terms, bits, packed_at + np.uint64(STRIP * strip) * tile_bytes, tile_bytes,
                     np.uint64(num_groups), packed_at + np.uint64(STRIP * (following % num_strips)) * tile_bytes,
                     weights_at)  # fmt: skip
        first = first_group + num_row_groups * block // num_blocks
        last = first_group + num_row_groups * (block + 1) // num_blocks
        if bias.shape[0]:
            for row in range(ROWS * first, min(ROWS * last, num_rows)):
                for column in range(STRIP * LANES * strip, STRIP * LANES * (strip + 1)):
                    total[row, column] += bias[column]
        for chunk in range(num_chunks):
            start = num_groups * chunk // num_chunks
            num_here = np.uint64(num_groups * (chunk + 1) // num_chunks - start)
            for row_group in range(first, last, 2):
                target = total_at + np.uint64(ROWS * row_group) * total_step + np.uint64(STRIP_STRIDE * strip)
                multiply_rows(min(2, last - row_group), terms, ONTO_OUTPUT,
                              activations + np.uint64(row_group) * group_step + np.uint64(start) * part_bytes,
                              group_step, weights_at + np.uint64(start * STRIP) * part_bytes, num_here, target, target,
                              target, total_step)  # fmt: skip


@compiled()
def gated_linear(  # type: ignore[no-untyped-def]
    terms,
    bits,
    counters,
    stage,
    num_blocks,
    packed,
    bias,
    activations,
    first_group,
    num_rows,
    strip_weights,
    strips,
    gated,
):
    """gate and up projection and SiLU(gate) · up in one, as `add_linear`; packed holds the gates' tiles, then the ups'.

    strips: scratch of this thread, float32 [2, 32, 32]; gated: address of the next layer's activations.
    """
    literally(terms)
    literally(bits)
    num_tiles, num_groups = packed.shape[0] // 2, packed.shape[1]
    num_row_groups = (num_rows + ROWS - 1) // ROWS - first_group
    part_bytes = np.uint64(num_parts_of(terms) * TILE_BYTES)
    group_step = np.uint64(num_groups) * part_bytes
    inner = LANES * num_tiles
    gated_step = np.uint64(inner // COLUMNS) * part_bytes
    packed_at, tile_bytes = np.uint64(packed.ctypes.data), np.uint64(packed.strides[0])
    ups_step = np.uint64(num_tiles) * tile_bytes
    weights_at, strip_at = np.uint64(strip_weights.ctypes.data), np.uint64(strips.ctypes.data)
    other_strip_at = strip_at + np.uint64(2 * ROWS * STRIP_STRIDE)
    no_bias = np.zeros(LANES, np.float32)
    gate_bias = up_bias = np.uint64(no_bias.ctypes.data)
    for item, following in items_ahead(counters, stage, num_blocks * num_tiles, 1):
        block, tile = item // num_tiles, item % num_tiles
        unpack_strip(terms, bits, packed_at + np.uint64(tile) * tile_bytes, ups_step, np.uint64(num_groups),
                     packed_at + np.uint64(following % num_tiles) * tile_bytes, weights_at)  # fmt: skip
        if bias.shape[0]:
            gate_bias = np.uint64(bias.ctypes.data) + np.uint64(4 * LANES * tile)
            up_bias = gate_bias + np.uint64(4 * inner)
        column = np.uint64(tile // 2) * part_bytes + np.uint64(tile % 2 * 2 * LANES)
        first = first_group + num_row_groups * block // num_blocks
        last = first_group + num_row_groups * (block + 1) // num_blocks
        before, target = np.uint64(0), np.uint64(0)  # a strip that isn't gated yet, and where it goes
        for row_group in range(first, last, 2):
            multiply_gating(min(2, last - row_group), terms, activations + np.uint64(row_group) * group_step,
                            group_step, weights_at, np.uint64(num_groups), gate_bias, up_bias, strip_at, before,
                            target, gated_step)  # fmt: skip
            before, target = strip_at, row_address(terms, gated, inner, ROWS * row_group) + column
            strip_at, other_strip_at = other_strip_at, strip_at
        for i in range(min(last - first, 2 - (last - first) % 2)):  # a block without rows has none to gate
            gate_rows(terms, np.uint64(ROWS), before + np.uint64(ROWS * STRIP_STRIDE * i),
                      target + np.uint64(i) * gated_step)  # fmt: skip
    return no_bias  # kept until here, for only its address was used
