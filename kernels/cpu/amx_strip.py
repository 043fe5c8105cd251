"""A strip of a packed linear layer by matrix tiles: 32 outputs unpacked, multiplied with 16 or 32 rows, gated.

A core multiplies tiles in a unit of its own, so the rows before are gated by vectors between its products.

Activations lie as amx_layout.py says.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numba import literally, types
from numba.core import cgutils
from numba.extending import intrinsic

from . import amx, simd
from .amx import COLUMNS, ROW_BYTES, ROWS, TILE_BYTES
from .amx_layout import num_parts_of
from .rows import short_silu_mul
from .simd import FLOATS, HALVES, I64, LANES, compiled
from .tile_rows import GROUP, SCALE_BYTES, group_bytes

STRIP = 2  # tiles of outputs that are computed together
STRIP_STRIDE = 4 * LANES * STRIP
FROM_BIAS, ONTO_OUTPUT = 0, 1  # where a sum of products begins

MANTISSA_BITS = 23
ONE_BITS = 0x3F800000  # 1.0 as float32

assert GROUP == COLUMNS


def _emit_unpacking(builder: Any, num_bits: int, num_parts: int, group: Any, place: Any) -> None:
    """One group of 16 outputs' weights, group_bytes at `group`, as a tile (two with low parts) at `place`."""
    scale_bytes = simd.at(builder, group, group_bytes(num_bits) - SCALE_BYTES)
    scale = builder.fpext(simd.load(builder, scale_bytes, HALVES), FLOATS)
    minima = simd.load(builder, simd.at(builder, scale_bytes, SCALE_BYTES // 2), HALVES)
    # The bits of q behind the exponent of 1 make 1 + q / 2^bits, which saves turning q into a float.
    scale = builder.fmul(scale, simd.floats(2.0**num_bits))
    minimum = builder.fsub(builder.fpext(minima, FLOATS), scale)
    lowest_bit = MANTISSA_BITS - num_bits

    def weight(column: int) -> Any:
        four, byte = divmod(column, 4)
        shift = 8 * byte
        if num_bits == 4:
            num_stored = GROUP // 8
            shift += 4 * (four // num_stored)
            four %= num_stored
        quads = simd.load(builder, simd.at(builder, group, 4 * LANES * four), simd.INTS)
        if shift < lowest_bit:
            quads = builder.shl(quads, simd.ints(lowest_bit - shift))
        elif shift > lowest_bit:
            quads = builder.lshr(quads, simd.ints(shift - lowest_bit))
        quants = builder.and_(quads, simd.ints((2**num_bits - 1) << lowest_bit))
        number = builder.bitcast(builder.or_(quants, simd.ints(ONE_BITS)), FLOATS)
        return simd.fma(builder, number, scale, minimum)

    for pair in range(GROUP // 2):
        row = simd.at(builder, place, ROW_BYTES * pair)
        amx.store_woven(builder, weight(2 * pair), weight(2 * pair + 1), row, num_parts)


@intrinsic
def unpack_tile(typing_context: Any, bits, terms, packed, num_groups, ahead, target, target_step):  # type: ignore[no-untyped-def]
    """16 outputs' weights, [groups, group_bytes], as a tile (two with low parts) for each group.

    Those at `ahead`, which needn't be valid, are fetched meanwhile.
    """
    if not simd.are_literal(bits, terms):
        return None
    num_bits, num_parts = bits.literal_value, amx.parts(terms.literal_value)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        packed, num_groups, ahead, target, target_step = arguments[2:]
        with cgutils.for_range(builder, num_groups) as loop:
            offset = builder.mul(loop.index, I64(group_bytes(num_bits)))
            group = simd.at(builder, packed, offset)
            for line in range(0, group_bytes(num_bits), ROW_BYTES):
                simd.prefetch(builder, simd.at(builder, simd.at(builder, ahead, offset), line))
            place = simd.at(builder, target, builder.mul(loop.index, target_step))
            _emit_unpacking(builder, num_bits, num_parts, group, place)
        return context.get_dummy_value()

    return types.void(bits, terms, *([types.uint64] * 5)), generate


@intrinsic
def multiply_strip(  # type: ignore[no-untyped-def]
    typing_context: Any,
    row_tiles,  # 1 or 2, literal
    terms,  # literal
    start,  # FROM_BIAS or ONTO_OUTPUT, literal
    gates,  # 1 where 32 rows of another strip are gated meanwhile, which needs 16 groups; else 0; literal
    activations,  # address of [groups, parts] tiles
    rows_step,  # bytes to those of the next 16 rows
    weights,  # address of [groups, STRIP, parts] tiles
    num_groups,
    first_bias,  # address of float32 [16], of the strip's first 16 outputs
    second_bias,
    output,  # address of float32 [16 row_tiles, 32]
    output_stride,  # bytes
    gate_up,  # address of float32 [32, 16 gates and 16 ups]
    gated,  # address of what they come to, half rows of activations
    gated_step,  # bytes to the next 16 rows
):
    """16 or 32 rows of activations times 32 outputs' weights.

    Tiles are multiplied by a unit of their own: rows gated between products cost little. Sums that begin with what
    stands in the output have the next 32 rows of it fetched meanwhile.
    """
    if not simd.are_literal(row_tiles, terms, start, gates):
        return None
    num_row_tiles, num_terms = row_tiles.literal_value, terms.literal_value
    num_parts = amx.parts(num_terms)
    firsts = range(4, 4 + num_row_tiles)
    seconds = range(6, 6 + STRIP)
    adds = start.literal_value == ONTO_OUTPUT

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        activations, rows_step, weights, num_groups, *biases, output, output_stride = arguments[4:12]
        gate_up, gated, gated_step = arguments[12:]

        def each_total() -> Iterator[tuple[int, int, Any]]:
            for row_tile in range(num_row_tiles):
                rows_at = simd.at(builder, output, builder.mul(output_stride, I64(ROWS * row_tile)))
                for column_tile in range(STRIP):
                    place = simd.at(builder, rows_at, ROW_BYTES * column_tile)
                    yield STRIP * row_tile + column_tile, column_tile, place

        def multiply_group(index: Any) -> None:
            first_at = simd.at(builder, activations, builder.mul(index, I64(num_parts * TILE_BYTES)))
            second_at = simd.at(builder, weights, builder.mul(index, I64(STRIP * num_parts * TILE_BYTES)))

            def load_firsts(part: int) -> None:
                for row_tile, tile in enumerate(firsts):
                    place = simd.at(builder, first_at, builder.mul(rows_step, I64(row_tile)))
                    amx.load_tile(builder, tile, simd.at(builder, place, part * TILE_BYTES), passes_by=True)

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

        def one_row_of_each_tile(index: Any) -> None:
            """What else is done with 32 rows, two of them at a time."""
            for row_tile in range(2):
                if adds:
                    row = builder.add(index, I64(ROWS * (2 + row_tile)))
                    place = simd.at(builder, output, builder.mul(output_stride, row))
                    for column_tile in range(STRIP):
                        simd.prefetch(builder, simd.at(builder, place, ROW_BYTES * column_tile), to_write=True)
                else:
                    source = simd.at(builder, gate_up, ROWS * STRIP_STRIDE * row_tile)
                    target = simd.at(builder, gated, builder.mul(gated_step, I64(row_tile)))
                    _emit_gating(builder, num_parts, source, target, index)

        for total, column_tile, place in each_total():
            if adds:
                amx.load_tile(builder, total, place, output_stride)
            else:
                amx.load_tile(builder, total, biases[column_tile], stride=I64(0))  # the same in every row
        num_shared = I64(0)
        if adds or gates.literal_value:
            is_less = builder.icmp_unsigned("<", num_groups, I64(ROWS))
            num_shared = builder.select(is_less, num_groups, I64(ROWS))
            with cgutils.for_range(builder, num_shared) as loop:
                multiply_group(loop.index)
                one_row_of_each_tile(loop.index)
        with cgutils.for_range(builder, num_groups, start=num_shared) as loop:
            multiply_group(loop.index)
        for total, _, place in each_total():
            amx.store_tile(builder, total, place, output_stride)
        return context.get_dummy_value()

    return types.void(row_tiles, terms, start, gates, *([types.uint64] * 11)), generate


def _emit_gating(builder: Any, num_parts: int, strip: Any, target: Any, row: Any) -> None:
    """Row `row` of a strip, 16 gates and 16 ups in float32 → half a row of activations."""
    source = simd.at(builder, strip, builder.mul(row, I64(STRIP_STRIDE)))
    gate = simd.load(builder, source, FLOATS)
    up = simd.load(builder, simd.at(builder, source, 4 * LANES), FLOATS)
    place = simd.at(builder, target, builder.mul(row, I64(ROW_BYTES)))
    amx.store_half_row(builder, short_silu_mul(builder, gate, up), place, num_parts)


@intrinsic
def gate_rows(typing_context: Any, terms, num_rows, strip, target):  # type: ignore[no-untyped-def]
    """strip float32 [num_rows, 16 gates and 16 ups] → half rows of activations, from `target` on."""
    if not simd.are_literal(terms):
        return None

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        num_rows, strip, target = arguments[1:]
        with cgutils.for_range(builder, num_rows) as loop:
            _emit_gating(builder, amx.parts(terms.literal_value), strip, target, loop.index)
        return context.get_dummy_value()

    return types.void(terms, *([types.uint64] * 3)), generate


@compiled()
def multiply_rows(  # type: ignore[no-untyped-def]
    num_row_tiles, terms, start, activations, rows_step, weights, num_groups, first_bias, second_bias, output,
    output_stride
):  # fmt: skip
    """`multiply_strip` for 1 or 2 tiles of rows."""
    literally(terms)
    literally(start)
    none = np.uint64(0)
    if num_row_tiles == 2:
        multiply_strip(2, terms, start, 0, activations, rows_step, weights, num_groups, first_bias, second_bias,
                       output, output_stride, none, none, none)  # fmt: skip
    else:
        multiply_strip(1, terms, start, 0, activations, rows_step, weights, num_groups, first_bias, second_bias,
                       output, output_stride, none, none, none)  # fmt: skip


@compiled()
def multiply_gating(  # type: ignore[no-untyped-def]
    num_row_tiles, terms, activations, rows_step, weights, num_groups, first_bias, second_bias, output, gate_up, gated,
    gated_step
):  # fmt: skip
    """As `multiply_rows`, from the bias, and 32 rows gated meanwhile unless `gate_up` is 0."""
    literally(terms)
    stride = np.uint64(STRIP_STRIDE)
    if num_row_tiles == 2 and gate_up and num_groups >= ROWS:
        multiply_strip(2, terms, FROM_BIAS, 1, activations, rows_step, weights, num_groups, first_bias, second_bias,
                       output, stride, gate_up, gated, gated_step)  # fmt: skip
        return
    multiply_rows(num_row_tiles, terms, FROM_BIAS, activations, rows_step, weights, num_groups, first_bias,
                  second_bias, output, stride)  # fmt: skip
    if gate_up:
        gate_rows(terms, np.uint64(ROWS), gate_up, gated)
        gate_rows(terms, np.uint64(ROWS), gate_up + np.uint64(ROWS * STRIP_STRIDE), gated + gated_step)


@compiled()
def unpack_strip(terms, bits, packed, tile_step, num_groups, ahead, target):  # type: ignore[no-untyped-def]
    """Two tiles of packed weights, [groups, group_bytes] each, `tile_step` bytes apart, side by side:
    [groups, STRIP, parts]. What lies at `ahead`, two tiles too, is fetched meanwhile."""
    part_bytes = np.uint64(num_parts_of(terms) * TILE_BYTES)
    for i in range(STRIP):
        offset = np.uint64(i) * tile_step
        unpack_tile(bits, terms, packed + offset, num_groups, ahead + offset, target + np.uint64(i) * part_bytes,
                    np.uint64(STRIP) * part_bytes)  # fmt: skip
