"""Linear layers with 4- or 8-bit weights and activations of two bytes.

A weight is w = d · q + m with one d and m for each group of 32 columns, in tiles of 16 rows (grouped_weights.py). An
activation is x = s · p with one s for each group. A group's products are summed as integers, exactly:

    y[row] = Σ over groups  d s Σ q p  +  m s Σ p

p has two bytes: p = 256 · coarse + fine, the coarse one in [-127, 127]. The second byte costs time only where the
products do, and not where reading the weights does, which is when few rows are computed; there it makes the error of
rounding activations vanish beside that of the weights.

Groups are added in order, in float32, whatever the number of rows: a row's result doesn't depend on the batch it is in.
"""

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import literally, types
from numba.core import cgutils
from numba.extending import intrinsic

from . import simd
from .byte_tiles import AT_ONCE, GROUPS_AT_ONCE, TILES_AT_ONCE, multiply_bytes
from .rows import gate_vectors
from .simd import FLOAT32, FLOATS, I32, I64, INTS, LANES, compiled
from .tile_rows import ARE_PAIRED, COLUMN_BYTES, GROUP, MOST_ROWS, PAIR_ORDER, STEP_BITS, STEPS, tile_rows
from .work_sharing import items_ahead

MOST = 127.0 * STEPS  # that two bytes stand for
MIN_BYTE_ROWS = 5
"""For fewer rows than eight a product of tiles takes as long as for eight."""
CLAIMS_PER_STAGE = 48  # enough that threads end together, few enough that claiming costs nothing


@intrinsic
def _quantise_groups(  # type: ignore[no-untyped-def]
    typing_context: Any, values, num_groups, quants, fine_step, scales, sums
):
    """A row of float32 as s · p with one scale a group; `sums` gets s Σ p."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        values, num_groups, quants, fine_step, scales, sums = arguments
        with cgutils.for_range(builder, num_groups) as loop:
            source = simd.at(builder, values, builder.mul(loop.index, I64(4 * GROUP)))
            halves = [simd.load(builder, simd.at(builder, source, 4 * LANES * i), FLOATS) for i in range(2)]
            sizes = [simd.call(builder, "llvm.fabs.v16f32", FLOATS, half) for half in halves]
            largest = simd.lanes_max(builder, simd.maximum(builder, *sizes))
            # The greater of a number and NaN is the number; but NaN must show, not turn into some byte.
            is_nan = builder.bitcast(builder.fcmp_unordered("uno", *halves), simd.I16)
            is_nan = builder.icmp_unsigned("!=", is_nan, simd.I16(0))
            largest = builder.select(is_nan, simd.F32(math.nan), largest)
            # A group of zeros would divide by zero; any factor gives zeros for it.
            is_zero = builder.fcmp_ordered("==", largest, simd.F32(0.0))
            inverse = builder.select(is_zero, simd.F32(0.0), builder.fdiv(simd.F32(MOST), largest))
            target = simd.at(builder, quants, builder.mul(loop.index, I64(COLUMN_BYTES * GROUP)))
            total = simd.ints(0)
            for i, half in enumerate(halves):
                scaled = builder.fmul(half, simd.splat(builder, inverse))
                quant = builder.fptosi(simd.call(builder, "llvm.rint.v16f32", FLOATS, scaled), INTS)
                total = builder.add(total, quant)
                if ARE_PAIRED:
                    _store_pairs(builder, quant, simd.at(builder, target, 2 * LANES * i))
                    continue
                coarse = builder.ashr(builder.add(quant, simd.ints(STEPS // 2)), simd.ints(STEP_BITS))
                fine = builder.sub(quant, builder.shl(coarse, simd.ints(STEP_BITS)))
                _store_bytes(builder, fine, simd.at(builder, builder.add(target, fine_step), LANES * i))
                _store_bytes(builder, coarse, simd.at(builder, target, LANES * i))
            summed = simd.call(builder, "llvm.vector.reduce.add.v16i32", I32, total)
            scale = builder.fdiv(largest, simd.F32(MOST))
            place = builder.mul(loop.index, I64(4))
            simd.store(builder, scale, simd.at(builder, scales, place))
            scaled_sum = builder.fmul(scale, builder.sitofp(summed, simd.F32))
            simd.store(builder, scaled_sum, simd.at(builder, sums, place))
        return context.get_dummy_value()

    return types.void(*([types.uint64] * 6)), generate


def _store_bytes(builder: Any, value: Any, place: Any) -> None:
    simd.store(builder, builder.trunc(value, ir.VectorType(simd.I8, LANES)), place)


def _store_pairs(builder: Any, value: Any, place: Any) -> None:
    order = ir.Constant(INTS, [first + place for first in range(0, LANES, 4) for place in PAIR_ORDER])
    shorts = builder.trunc(value, simd.SHORTS)
    simd.store(builder, builder.shuffle_vector(shorts, shorts, order), place)


@compiled()
def quantise_row(values, quants, scales, sums):  # type: ignore[no-untyped-def]
    """values float32 [columns] → quants int8 [ACTIVATION_BYTES, at least columns], scales and sums float32 [groups].

    Where they `ARE_PAIRED`, the bytes of `quants` hold int16 [columns] instead, in `PAIR_ORDER`.
    """
    _quantise_groups(
        np.uint64(values.ctypes.data),
        np.uint64(values.shape[0] // GROUP),
        np.uint64(quants.ctypes.data),
        np.uint64(quants.strides[0]),
        np.uint64(scales.ctypes.data),
        np.uint64(sums.ctypes.data),
    )


@compiled()
def _multiply_tile(  # type: ignore[no-untyped-def]
    bits, tile, num_groups, num_rows, quants, fine_step, quants_step, scales, sums, scales_step, output,
    output_step, following
):  # fmt: skip
    """One tile of weights times so many rows, all by address."""
    literally(bits)
    row = 0
    while row < num_rows:
        if MOST_ROWS >= 8 and num_rows - row >= 8:
            num_here = 8
            tile_rows(bits, 8, tile, num_groups, quants, fine_step, quants_step, scales, sums, scales_step,
                      output, output_step, following)  # fmt: skip
        elif num_rows - row >= 4:
            num_here = 4
            tile_rows(bits, 4, tile, num_groups, quants, fine_step, quants_step, scales, sums, scales_step,
                      output, output_step, following)  # fmt: skip
        elif num_rows - row >= 2:
            num_here = 2
            tile_rows(bits, 2, tile, num_groups, quants, fine_step, quants_step, scales, sums, scales_step,
                      output, output_step, following)  # fmt: skip
        else:
            num_here = 1
            tile_rows(bits, 1, tile, num_groups, quants, fine_step, quants_step, scales, sums, scales_step,
                      output, output_step, following)  # fmt: skip
        row += num_here
        quants += np.uint64(num_here) * quants_step
        scales += np.uint64(num_here) * scales_step
        sums += np.uint64(num_here) * scales_step
        output += np.uint64(num_here) * output_step


@compiled()
def _multiply_two_tiles(  # type: ignore[no-untyped-def]
    bits, byte_tiles, tile, tile_step, num_groups, num_rows, quants, fine_step, quants_step, scales, sums,
    scales_step, output, output_step, scratch, following
):  # fmt: skip
    """Two tiles of weights, side by side in the output, times so many rows, all by address."""
    literally(bits)
    literally(byte_tiles)
    done = 0
    if byte_tiles and num_groups % np.uint64(GROUPS_AT_ONCE) == 0:
        while num_rows - done >= MIN_BYTE_ROWS:
            num_here = min(num_rows - done, AT_ONCE)
            offset, scales_offset = np.uint64(done) * quants_step, np.uint64(done) * scales_step
            multiply_bytes(byte_tiles, bits, tile, tile_step, num_groups, np.uint64(num_here), quants + offset,
                           fine_step, scales + scales_offset, sums + scales_offset, scales_step,
                           output + np.uint64(done) * output_step, output_step, scratch, following)  # fmt: skip
            done += num_here
    if done < num_rows:
        quants += np.uint64(done) * quants_step
        scales += np.uint64(done) * scales_step
        sums += np.uint64(done) * scales_step
        output += np.uint64(done) * output_step
        for i in range(TILES_AT_ONCE):
            step = np.uint64(i)
            _multiply_tile(bits, tile + step * tile_step, num_groups, num_rows - done, quants, fine_step,
                           quants_step, scales, sums, scales_step, output + step * np.uint64(4 * LANES),
                           output_step, following + step * tile_step)  # fmt: skip


@compiled()
def linear(  # type: ignore[no-untyped-def]
    bits,  # literal, as is the next
    byte_tiles,  # 1 where the thread's tiles have byte_tile_shapes, else 0
    counters,
    stage,
    packed,  # uint8 [tiles, groups, group_bytes]
    bias,  # float32 [out] or [0]
    quants,  # int8 [rows, ACTIVATION_BYTES, in]; with byte tiles, rows up to a multiple of 8
    scales,  # float32 [rows, groups]
    sums,
    output,  # float32 [rows, 16 tiles]
    scratch,  # address of SCRATCH_BYTES of this thread, on a cache line; any with no byte tiles
):
    """One layer for all rows, its tiles shared among the threads."""
    literally(bits)
    literally(byte_tiles)
    num_rows, num_tiles, num_groups = output.shape[0], packed.shape[0], np.uint64(packed.shape[1])
    packed_at, tile_step = np.uint64(packed.ctypes.data), np.uint64(packed.strides[0])
    fine_step, quants_step = np.uint64(quants.strides[1]), np.uint64(quants.strides[0])
    scales_step, output_step = np.uint64(scales.strides[0]), np.uint64(output.strides[0])
    quants_at, scales_at, sums_at = (
        np.uint64(quants.ctypes.data),
        np.uint64(scales.ctypes.data),
        np.uint64(sums.ctypes.data),
    )
    output_at = np.uint64(output.ctypes.data)
    num_pairs = (num_tiles + 1) // TILES_AT_ONCE
    for pair, following in items_ahead(counters, stage, num_pairs, max(1, num_pairs // CLAIMS_PER_STAGE)):
        tile = TILES_AT_ONCE * pair
        next_at = packed_at + np.uint64(TILES_AT_ONCE * (following if following >= 0 else pair)) * tile_step
        tile_at, target = packed_at + np.uint64(tile) * tile_step, output_at + np.uint64(4 * LANES * tile)
        if tile + 1 < num_tiles:
            _multiply_two_tiles(bits, byte_tiles, tile_at, tile_step, num_groups, num_rows, quants_at,
                                fine_step, quants_step, scales_at, sums_at, scales_step, target, output_step,
                                scratch, next_at)  # fmt: skip
        else:
            _multiply_tile(bits, tile_at, num_groups, num_rows, quants_at, fine_step, quants_step, scales_at,
                           sums_at, scales_step, target, output_step, next_at)  # fmt: skip
        if bias.shape[0]:
            for row in range(num_rows):
                for lane in range(LANES * tile, LANES * min(tile + TILES_AT_ONCE, num_tiles)):
                    output[row, lane] += bias[lane]


@compiled()
def gated_linear(  # type: ignore[no-untyped-def]
    bits,  # literal, as is the next
    byte_tiles,
    counters,
    stage,
    num_rows,
    packed,  # uint8 [tiles, groups, group_bytes]: the gates' tiles, then the ups'
    bias,  # float32 [out] or [0]
    quants,  # int8 [rows, ACTIVATION_BYTES, in], as are the next four as for `linear`
    scales,
    sums,
    scratch,
    strip,  # scratch of this thread, float32 [AT_ONCE, 2 GROUP], on a cache line
    gated_quants,  # int8 [rows, ACTIVATION_BYTES, inner], what the next layer takes, as are the next two
    gated_scales,  # float32 [rows, inner / GROUP]
    gated_sums,
):
    """Gate and up projection, SiLU(gate) · up, and its rounding: a group of 32 at a time stays in the nearest cache."""
    literally(bits)
    literally(byte_tiles)
    num_tiles, num_groups = packed.shape[0] // 2, np.uint64(packed.shape[1])
    packed_at, tile_step = np.uint64(packed.ctypes.data), np.uint64(packed.strides[0])
    fine_step, quants_step = np.uint64(quants.strides[1]), np.uint64(quants.strides[0])
    scales_step, strip_step = np.uint64(scales.strides[0]), np.uint64(4 * 2 * GROUP)
    strip_at, half = np.uint64(strip.ctypes.data), np.uint64(4 * GROUP)
    inner = LANES * num_tiles
    gated_at, gated_step = np.uint64(gated_quants.ctypes.data), np.uint64(gated_quants.strides[0])
    gated_fine_step, gated_scales_step = np.uint64(gated_quants.strides[1]), np.uint64(gated_scales.strides[0])
    gated_scales_at, gated_sums_at = np.uint64(gated_scales.ctypes.data), np.uint64(gated_sums.ctypes.data)
    for group, following in items_ahead(counters, stage, inner // GROUP, 1):
        next_at = packed_at + np.uint64(TILES_AT_ONCE * (following if following >= 0 else group)) * tile_step
        gates_at = packed_at + np.uint64(TILES_AT_ONCE * group) * tile_step
        ups_at = gates_at + np.uint64(num_tiles) * tile_step
        for first in range(0, num_rows, AT_ONCE):
            num_here, row = min(AT_ONCE, num_rows - first), np.uint64(first)
            quants_at = np.uint64(quants.ctypes.data) + row * quants_step
            scales_at, sums_at = (
                np.uint64(scales.ctypes.data) + row * scales_step,
                np.uint64(sums.ctypes.data) + row * scales_step,
            )
            _multiply_two_tiles(bits, byte_tiles, gates_at, tile_step, num_groups, num_here, quants_at,
                                fine_step, quants_step, scales_at, sums_at, scales_step, strip_at, strip_step,
                                scratch, ups_at)  # fmt: skip
            _multiply_two_tiles(bits, byte_tiles, ups_at, tile_step, num_groups, num_here, quants_at,
                                fine_step, quants_step, scales_at, sums_at, scales_step, strip_at + half, strip_step,
                                scratch, next_at)  # fmt: skip
            if bias.shape[0]:
                for i in range(num_here):
                    for lane in range(GROUP):
                        strip[i, lane] += bias[GROUP * group + lane]
                        strip[i, GROUP + lane] += bias[inner + GROUP * group + lane]
            for i in range(num_here):
                row, row_at = np.uint64(first + i), strip_at + np.uint64(i) * strip_step
                gate_vectors(FLOAT32, row_at, row_at + half, row_at, np.uint64(GROUP // LANES))
                place = row * gated_scales_step + np.uint64(4 * group)
                _quantise_groups(row_at, np.uint64(1),
                                 gated_at + row * gated_step + np.uint64(COLUMN_BYTES * GROUP * group),
                                 gated_fine_step, gated_scales_at + place, gated_sums_at + place)  # fmt: skip
