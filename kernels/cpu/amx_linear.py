"""Packed linear layers for many rows of activations, by matrix tiles.

32 outputs at a time: their weights are unpacked into tiles of bfloat16, which stay in the core's cache while all rows
are multiplied with them. Unpacking costs as much as some 30 rows, so this pays for many rows; for few, and where there
are no tiles, packed_linear.py serves.

Activations lie as amx_layout.py says.
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numba import literally, types
from numba.core import cgutils
from numba.extending import intrinsic

from . import amx, simd
from .amx import COLUMNS, ROW_BYTES, ROWS, TILE_BYTES
from .amx_layout import num_parts_of, row_address
from .simd import FLOATS, HALVES, I64, LANES, compiled
from .tile_rows import GROUP, SCALE_BYTES, group_bytes
from .work_sharing import items

STRIP = 2  # tiles of outputs that are computed together
STRIP_STRIDE = 4 * LANES * STRIP
FROM_BIAS, ONTO_OUTPUT = 0, 1  # where a sum of products begins
BLOCK_BYTES = 5 << 17  # of activations that a strip is multiplied with before the next: they stay in a core's cache

MANTISSA_BITS = 23
ONE_BITS = 0x3F800000  # 1.0 as float32
LOG2_E = math.log2(math.e)

assert GROUP == COLUMNS


@intrinsic
def _unpack_tile(typing_context: Any, bits, terms, packed, num_groups, target, target_step):  # type: ignore[no-untyped-def]
    """16 outputs' weights, [groups, group_bytes], as a tile (two with low parts) for each group."""
    if not simd.are_literal(bits, terms):
        return None
    num_bits, num_parts = bits.literal_value, amx.parts(terms.literal_value)
    num_bytes = group_bytes(num_bits)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        packed, num_groups, target, target_step = arguments[2:]
        with cgutils.for_range(builder, num_groups) as loop:
            group = simd.at(builder, packed, builder.mul(loop.index, I64(num_bytes)))
            place = simd.at(builder, target, builder.mul(loop.index, target_step))
            scale_bytes = simd.at(builder, group, num_bytes - SCALE_BYTES)
            scale = builder.fpext(simd.load(builder, scale_bytes, HALVES), FLOATS)
            minima = simd.load(builder, simd.at(builder, scale_bytes, SCALE_BYTES // 2), HALVES)
            # The bits of q behind the exponent of 1 make 1 + q / 2^bits, which saves turning q into a float.
            scale = builder.fmul(scale, simd.floats(2.0**num_bits))
            minimum = builder.fsub(builder.fpext(minima, FLOATS), scale)
            lowest_bit = MANTISSA_BITS - num_bits

            def weight(column: int) -> Any:
                four, byte = divmod(column, 4)
                place = 8 * byte
                if num_bits == 4:
                    num_stored = GROUP // 8
                    place += 4 * (four // num_stored)
                    four %= num_stored
                quads = simd.load(builder, simd.at(builder, group, 4 * LANES * four), simd.INTS)
                if place < lowest_bit:
                    quads = builder.shl(quads, simd.ints(lowest_bit - place))
                elif place > lowest_bit:
                    quads = builder.lshr(quads, simd.ints(place - lowest_bit))
                quants = builder.and_(quads, simd.ints((2**num_bits - 1) << lowest_bit))
                number = builder.bitcast(builder.or_(quants, simd.ints(ONE_BITS)), FLOATS)
                return simd.fma(builder, number, scale, minimum)

            for pair in range(GROUP // 2):
                row = simd.at(builder, place, ROW_BYTES * pair)
                amx.store_woven(builder, weight(2 * pair), weight(2 * pair + 1), row, num_parts)
        return context.get_dummy_value()

    return types.void(bits, terms, *([types.uint64] * 4)), generate


@intrinsic
def multiply_strip(  # type: ignore[no-untyped-def]
    typing_context: Any,
    row_tiles,  # 1 or 2, literal
    terms,  # literal
    start,  # FROM_BIAS or ONTO_OUTPUT, literal
    activations,  # address of [groups, parts] tiles
    rows_step,  # bytes to those of the next 16 rows
    weights,  # address of [groups, STRIP, parts] tiles
    num_groups,
    first_bias,  # address of float32 [16], of the strip's first 16 outputs
    second_bias,
    output,  # address of float32 [16 row_tiles, 32]
    output_stride,  # bytes
):
    """16 or 32 rows of activations times 32 outputs' weights."""
    if not simd.are_literal(row_tiles, terms, start):
        return None
    num_row_tiles, num_terms = row_tiles.literal_value, terms.literal_value
    num_parts = amx.parts(num_terms)
    firsts = range(4, 4 + num_row_tiles)
    seconds = range(6, 6 + STRIP)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        activations, rows_step, weights, num_groups, *biases, output, output_stride = arguments[3:]

        def each_total() -> Iterator[tuple[int, int, Any]]:
            for row_tile in range(num_row_tiles):
                rows_at = simd.at(builder, output, builder.mul(output_stride, I64(ROWS * row_tile)))
                for column_tile in range(STRIP):
                    place = simd.at(builder, rows_at, ROW_BYTES * column_tile)
                    yield STRIP * row_tile + column_tile, column_tile, place

        for total, column_tile, place in each_total():
            if start.literal_value == ONTO_OUTPUT:
                amx.load_tile(builder, total, place, output_stride)
            else:
                amx.load_tile(builder, total, biases[column_tile], stride=I64(0))  # the same in every row
        with cgutils.for_range(builder, num_groups) as loop:
            first_at = simd.at(builder, activations, builder.mul(loop.index, I64(num_parts * TILE_BYTES)))
            second_at = simd.at(builder, weights, builder.mul(loop.index, I64(STRIP * num_parts * TILE_BYTES)))

            def load_firsts(part: int) -> None:
                for row_tile, tile in enumerate(firsts):
                    place = simd.at(builder, first_at, builder.mul(rows_step, I64(row_tile)))
                    amx.load_tile(builder, tile, simd.at(builder, place, part * TILE_BYTES))

            def load_seconds(part: int) -> None:
                for column_tile, tile in enumerate(seconds):
                    amx.load_tile(
                        builder, tile, simd.at(builder, second_at, (column_tile * num_parts + part) * TILE_BYTES)
                    )

            def multiply() -> None:
                for row_tile, first in enumerate(firsts):
                    for column_tile, second in enumerate(seconds):
                        amx.multiply(builder, STRIP * row_tile + column_tile, first, second)

            load_seconds(0)
            if num_terms == 3:
                load_firsts(1)
                multiply()  # low · high
            load_firsts(0)
            multiply()
            if num_terms == 3:
                load_seconds(1)
                multiply()  # high · low
        for total, _, place in each_total():
            amx.store_tile(builder, total, place, output_stride)
        return context.get_dummy_value()

    return types.void(row_tiles, terms, start, *([types.uint64] * 8)), generate


def _silu_mul(builder: Any, gate: Any, up: Any) -> Any:
    """gate · sigmoid(gate) · up, within 1e-6; a third of the time of `rows.silu_mul`, in AVX-512's own terms."""
    size = simd.call(builder, "llvm.fabs.v16f32", FLOATS, gate)
    decay = simd.power_of_2(builder, builder.fmul(size, simd.floats(-LOG2_E)))
    share = simd.inverse(builder, builder.fadd(decay, simd.floats(1.0)))
    is_negative = builder.fcmp_ordered("<", gate, simd.floats(0.0))
    sigmoid = builder.select(is_negative, builder.fmul(decay, share), share)
    return builder.fmul(builder.fmul(gate, sigmoid), up)


@intrinsic
def _gate_rows(typing_context: Any, terms, num_rows, strip, target):  # type: ignore[no-untyped-def]
    """strip float32 [num_rows, 16 gates and 16 ups] → half rows of activations, from `target` on."""
    if not simd.are_literal(terms):
        return None
    num_parts = amx.parts(terms.literal_value)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        num_rows, strip, target = arguments[1:]
        with cgutils.for_range(builder, num_rows) as loop:
            source = simd.at(builder, strip, builder.mul(loop.index, I64(STRIP_STRIDE)))
            gate = simd.load(builder, source, FLOATS)
            up = simd.load(builder, simd.at(builder, source, 4 * LANES), FLOATS)
            place = simd.at(builder, target, builder.mul(loop.index, I64(ROW_BYTES)))
            amx.store_half_row(builder, _silu_mul(builder, gate, up), place, num_parts)
        return context.get_dummy_value()

    return types.void(terms, *([types.uint64] * 3)), generate


def count_blocks(num_rows: int, num_columns: int, num_outputs: int, terms: int, num_threads: int) -> int:
    """Into how many blocks of rows a product is cut: each fits a core's cache, and every thread finds some work."""
    row_groups = -(-num_rows // ROWS)
    num_bytes = row_groups * ROWS * num_columns * 2 * amx.parts(terms)
    num_strips = -(-num_outputs // (STRIP * LANES))
    wanted = max(-(-num_bytes // BLOCK_BYTES), -(-4 * num_threads // num_strips))
    return max(1, min(wanted, row_groups // 2))


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
    group_step = np.uint64(num_groups * num_parts_of(terms) * TILE_BYTES)
    weights_at, total_at = np.uint64(strip_weights.ctypes.data), np.uint64(total.ctypes.data)
    total_step = np.uint64(total.strides[0])
    for item in items(counters, stage, num_blocks * num_strips, 1):
        block, strip = item // num_strips, item % num_strips
        unpack_strip(terms, bits, packed, STRIP * strip, STRIP * strip + 1, weights_at)
        row_group = first_group + num_row_groups * block // num_blocks
        last = first_group + num_row_groups * (block + 1) // num_blocks
        if bias.shape[0]:
            for row in range(ROWS * row_group, min(ROWS * last, num_rows)):
                for column in range(STRIP * LANES * strip, STRIP * LANES * (strip + 1)):
                    total[row, column] += bias[column]
        while row_group < last:
            here = activations + np.uint64(row_group) * group_step
            target = total_at + np.uint64(ROWS * row_group) * total_step + np.uint64(STRIP_STRIDE * strip)
            if row_group + 1 < last:
                multiply_strip(2, terms, ONTO_OUTPUT, here, group_step, weights_at, np.uint64(num_groups),
                               target, target, target, total_step)  # fmt: skip
            else:
                multiply_strip(1, terms, ONTO_OUTPUT, here, group_step, weights_at, np.uint64(num_groups),
                               target, target, target, total_step)  # fmt: skip
            row_group += 2


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
    strip,
    gated,
):
    """gate and up projection and SiLU(gate) · up in one, as `linear`; packed holds the gates' tiles, then the ups'.

    strip: scratch of this thread, float32 [32, 32]; gated: address of the next layer's activations.
    """
    literally(terms)
    literally(bits)
    num_tiles, num_groups = packed.shape[0] // 2, packed.shape[1]
    num_row_groups = (num_rows + ROWS - 1) // ROWS - first_group
    num_parts = num_parts_of(terms)
    group_step = np.uint64(num_groups * num_parts * TILE_BYTES)
    weights_at, strip_at = np.uint64(strip_weights.ctypes.data), np.uint64(strip.ctypes.data)
    inner = LANES * num_tiles
    no_bias = np.zeros(LANES, np.float32)
    gate_bias = up_bias = np.uint64(no_bias.ctypes.data)
    for item in items(counters, stage, num_blocks * num_tiles, 1):
        block, tile = item // num_tiles, item % num_tiles
        unpack_strip(terms, bits, packed, tile, num_tiles + tile, weights_at)
        if bias.shape[0]:
            gate_bias = np.uint64(bias.ctypes.data) + np.uint64(4 * LANES * tile)
            up_bias = gate_bias + np.uint64(4 * inner)
        column = np.uint64(tile // 2 * num_parts * TILE_BYTES + tile % 2 * 2 * LANES)
        row_group = first_group + num_row_groups * block // num_blocks
        last = first_group + num_row_groups * (block + 1) // num_blocks
        while row_group < last:
            here = activations + np.uint64(row_group) * group_step
            num_here = min(2, last - row_group)
            if num_here == 2:
                multiply_strip(2, terms, FROM_BIAS, here, group_step, weights_at, np.uint64(num_groups),
                               gate_bias, up_bias, strip_at, np.uint64(STRIP_STRIDE))  # fmt: skip
            else:
                multiply_strip(1, terms, FROM_BIAS, here, group_step, weights_at, np.uint64(num_groups),
                               gate_bias, up_bias, strip_at, np.uint64(STRIP_STRIDE))  # fmt: skip
            for i in range(num_here):
                target = row_address(terms, gated, inner, ROWS * (row_group + i)) + column
                _gate_rows(terms, np.uint64(ROWS), strip_at + np.uint64(ROWS * STRIP_STRIDE * i), target)
            row_group += 2
    return no_bias


@compiled()
def unpack_strip(terms, bits, packed, first_tile, second_tile, target):  # type: ignore[no-untyped-def]
    """Two tiles of packed weights, side by side."""
    part_bytes = np.uint64(num_parts_of(terms) * TILE_BYTES)
    step = np.uint64(STRIP) * part_bytes
    packed_at, tile_bytes = np.uint64(packed.ctypes.data), np.uint64(packed.strides[0])
    num_groups = np.uint64(packed.shape[1])
    _unpack_tile(bits, terms, packed_at + np.uint64(first_tile) * tile_bytes, num_groups, target, step)
    _unpack_tile(bits, terms, packed_at + np.uint64(second_tile) * tile_bytes, num_groups, target + part_bytes, step)
