"""Rows of activations as the first factor of products of tiles.

A matrix lies as tiles, [rows / 16, columns / 32, parts, 16, 32] bfloat16: 16 rows are next to each other, and so are
the parts of a number (amx.py).

Queries lie as rows, [heads, parts, rows, features] bfloat16, for their tiles may begin at any row.
"""

from typing import Any

import numpy as np
from numba import literally, types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from . import amx, simd
from .amx import COLUMNS, ROW_BYTES, ROWS, TILE_BYTES
from .simd import FLOATS, I64, LANES, compiled


def tiles_for(num_rows: int, num_columns: int, terms: int) -> NDArray[np.uint8]:
    """Memory for activations [rows / 16, columns / 32, parts] tiles, zeros, on a cache line."""
    num_tiles = -(-num_rows // ROWS) * (num_columns // COLUMNS) * amx.parts(terms)
    memory = np.zeros(num_tiles * TILE_BYTES + ROW_BYTES, np.uint8)
    start = -memory.ctypes.data % ROW_BYTES
    return memory[start : start + num_tiles * TILE_BYTES]


@intrinsic
def store_values(typing_context: Any, terms, values, num_groups, target, group_step, part_step):  # type: ignore[no-untyped-def]
    """float32 values as bfloat16: 32 at a time go to `target`, `group_step` bytes apart, and `part_step` bytes behind
    each the low parts."""
    if not simd.are_literal(terms):
        return None
    num_parts = amx.parts(terms.literal_value)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        values, num_groups, target, group_step, part_step = arguments[1:]
        with cgutils.for_range(builder, num_groups) as loop:
            source = simd.at(builder, values, builder.mul(loop.index, I64(4 * COLUMNS)))
            place = simd.at(builder, target, builder.mul(loop.index, group_step))
            halves = [simd.load(builder, simd.at(builder, source, 4 * LANES * half), FLOATS) for half in range(2)]
            amx.store_row(builder, halves[0], halves[1], place, num_parts, part_step)
        return context.get_dummy_value()

    return types.void(terms, *([types.uint64] * 5)), generate


num_parts_of = compiled(inline="always")(amx.parts)


@compiled()
def row_address(terms, activations, num_columns, row):  # type: ignore[no-untyped-def]
    """Where a row begins in the first tile; `activations` is the address of [rows / 16, num_columns / 32, …]."""
    row_group = np.uint64(row // ROWS) * np.uint64(num_columns // COLUMNS * num_parts_of(terms) * TILE_BYTES)
    return activations + row_group + np.uint64(row % ROWS * ROW_BYTES)


@compiled()
def store_row(terms, values, activations, num_columns, row):  # type: ignore[no-untyped-def]
    """values [num_columns] float32 → that row of the activations."""
    literally(terms)
    store_values(terms, np.uint64(values.ctypes.data), np.uint64(num_columns // COLUMNS),
                 row_address(terms, activations, num_columns, row), np.uint64(num_parts_of(terms) * TILE_BYTES),
                 np.uint64(TILE_BYTES))  # fmt: skip


@compiled()
def tile_floats(terms, num_groups, num_columns):  # type: ignore[no-untyped-def]
    """How many float32 take the place of tiles [num_groups, num_columns / 32, parts]."""
    return num_groups * (num_columns // COLUMNS) * num_parts_of(terms) * TILE_BYTES // 4


@compiled()
def tiles_base(terms, tiles, num_columns, first_group):  # type: ignore[no-untyped-def]
    """The address where activations would begin of which `tiles` holds those from 16 `first_group` on."""
    group_bytes = np.uint64(num_columns // COLUMNS * num_parts_of(terms) * TILE_BYTES)
    return np.uint64(tiles.ctypes.data) - np.uint64(first_group) * group_bytes
