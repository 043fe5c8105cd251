"""Linear layers with 4- or 8-bit weights and 8-bit activations.

A weight is w = d · q + m, with q unsigned and one d and m for each row and group of 32 columns (GGUF's Q4_1; Q4_0 and
Q8_0 are special cases of it, so such files are taken over without rounding again). An activation is x = s · p with one
s for each group. A group's products are summed as integers, exactly:

    y[row] = Σ over groups  d s Σ q p  +  m s Σ p

p has one byte, or two: p = 256 · coarse + fine, the coarse one in [-127, 127]. The second byte costs time only where
the products do, and not where reading the weights does, which is when few rows are computed; there it makes the error
of rounding activations vanish beside that of the weights.

Groups are added in order, in float32, whatever the number of rows: a row's result doesn't depend on the batch it is in.

16 rows of weights lie together as the lanes of a vector, so one load serves 16 outputs and nothing is summed across
lanes. A tile is [groups, bytes]: 8 fours of columns times 16 rows times 4 columns, then d and m of the 16 rows in
float16. With 4 bits, four i has the low halves of the bytes of which four i + 4 has the high ones.
"""

import math
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from llvmlite import ir
from numba import literally, types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from . import simd
from .byte_tiles import AT_ONCE, GROUPS_AT_ONCE, TILES_AT_ONCE, multiply_bytes
from .rows import gate_vectors
from .simd import FLOAT32, FLOATS, I32, I64, INTS, LANES, compiled
from .tile_rows import FOURS, GROUP, MOST_ROWS, PAIR_ORDER, SCALE_BYTES, STEP_BITS, STEPS, are_paired, tile_rows
from .work_sharing import items_ahead

LARGEST = float(np.finfo(np.float16).max)
ROWS_AT_ONCE = 4096  # that are rounded together: what rounding needs in between stays small
COLUMN_BYTES = tuple(2 if are_paired(levels) else 1 for levels in range(3))
"""By the number of levels, how far from each other columns of activations lie."""
MIN_BYTE_ROWS = 5
"""For fewer rows than eight a product of tiles takes as long as for eight."""
CLAIMS_PER_STAGE = 48  # enough that threads end together, few enough that claiming costs nothing


@dataclass(frozen=True, slots=True)
class GroupedWeights:
    """A matrix as w = d · q + m, before it is packed."""

    quants: NDArray[np.uint8]  # [rows, columns]
    scales: NDArray[np.float16]  # [rows, columns / GROUP], d
    minima: NDArray[np.float16]  # [rows, columns / GROUP], m

    def dense(self) -> NDArray[np.float32]:  # [rows, columns]
        """The values that these numbers stand for."""
        rows, columns = self.quants.shape
        grouped = self.quants.reshape(rows, columns // GROUP, GROUP).astype(np.float32)
        values = grouped * self.scales[:, :, None].astype(np.float32) + self.minima[:, :, None].astype(np.float32)
        return values.reshape(rows, columns)


def quantise(weight: NDArray[np.float32], bits: int) -> GroupedWeights:  # [rows, columns]
    """Rounds a matrix to w = d · q + m, group by group.

    Exact for values that came from Q4_1 or Q4_0, with 8 bits from Q8_0 too, up to the order of the two ends. What
    float16 can't hold becomes the largest number that it can; NaN stays NaN, in all of its group.
    """
    rows, columns = weight.shape
    num_groups = columns // GROUP
    rounded = GroupedWeights(
        np.empty((rows, columns), np.uint8),
        np.empty((rows, num_groups), np.float16),
        np.empty((rows, num_groups), np.float16),
    )
    round_groups = _round_to_8_bits if bits == 8 else _round_to_4_bits
    for start in range(0, rows, ROWS_AT_ONCE):
        here = slice(start, start + ROWS_AT_ONCE)
        grouped = np.clip(weight[here], -LARGEST, LARGEST).reshape(-1, num_groups, GROUP)
        quants, rounded.scales[here], rounded.minima[here] = round_groups(grouped)
        rounded.quants[here] = quants.reshape(-1, columns)
    return rounded


_Rounded: TypeAlias = tuple[NDArray[np.uint8], NDArray[np.float16], NDArray[np.float16]]  # q, d, m


def _round_to_8_bits(grouped: NDArray[np.float32]) -> _Rounded:  # [rows, groups, GROUP]
    """q = 128 stands for 0, as in Q8_0; but values that came from 4 bits keep their steps, and so lose nothing."""
    scales = np.minimum(np.abs(grouped).max(axis=2) / 127, LARGEST / 128).astype(np.float16)
    by_size = _round_to(grouped, scales, scales * np.float16(-128), 8)
    first_rows = grouped[:LANES]
    if _squared_error(first_rows, _round_to_4_bits(first_rows)).any():
        return by_size
    return _better(grouped, by_size, _round_to_4_bits(grouped))


def _round_to_4_bits(grouped: NDArray[np.float32]) -> _Rounded:  # [rows, groups, GROUP]
    """From least to greatest as Q4_1, or q = 0 for what lies farthest from 0 and q = 8 for 0 itself as Q4_0."""
    least, greatest = grouped.min(axis=2), grouped.max(axis=2)
    by_range = _round_to(grouped, ((greatest - least) / 15).astype(np.float16), least.astype(np.float16), 4)
    scales = (np.where(-least > greatest, least, greatest) / -8).astype(np.float16)
    return _better(grouped, by_range, _round_to(grouped, scales, scales * np.float16(-8), 4))


def _better(grouped: NDArray[np.float32], first: _Rounded, second: _Rounded) -> _Rounded:
    """Of each group the one that is nearer."""
    takes_second = _squared_error(grouped, second) < _squared_error(grouped, first)
    return (
        np.where(takes_second[:, :, None], second[0], first[0]),
        np.where(takes_second, second[1], first[1]),
        np.where(takes_second, second[2], first[2]),
    )


def _round_to(
    grouped: NDArray[np.float32], scales: NDArray[np.float16], minima: NDArray[np.float16], bits: int
) -> _Rounded:
    wide = scales.astype(np.float32)
    steps = np.divide(1.0, wide, out=np.zeros_like(wide), where=wide != 0)[:, :, None]
    quants = np.clip(np.rint((grouped - minima.astype(np.float32)[:, :, None]) * steps), 0, 2**bits - 1)
    with np.errstate(invalid="ignore"):  # NaN: the scale says so, whatever the quants are
        return quants.astype(np.uint8), scales, minima


def _squared_error(grouped: NDArray[np.float32], rounded: _Rounded) -> NDArray[np.float32]:  # [rows, groups]
    quants, scales, minima = rounded
    values = quants * scales.astype(np.float32)[:, :, None] + minima.astype(np.float32)[:, :, None]
    return np.square(values - grouped).sum(axis=2)


def pack(weights: GroupedWeights, bits: int) -> NDArray[np.uint8]:  # [tiles, groups, group_bytes]
    """The order in which the kernel reads; missing rows of the last tile are zeros."""
    rows, columns = weights.quants.shape
    num_tiles, num_groups = -(-rows // LANES), columns // GROUP
    padding = ((0, num_tiles * LANES - rows), (0, 0))
    quants = np.pad(weights.quants, padding).reshape(num_tiles, LANES, num_groups, FOURS, 4)
    fours: NDArray[np.uint8] = quants.transpose(0, 2, 3, 1, 4).reshape(num_tiles, num_groups, FOURS, 4 * LANES)
    if bits == 4:
        fours = fours[:, :, : FOURS // 2] | np.left_shift(fours[:, :, FOURS // 2 :], 4, dtype=np.uint8)
    tables = [
        np.pad(table, padding).reshape(num_tiles, LANES, num_groups).transpose(0, 2, 1)
        for table in (weights.scales, weights.minima)
    ]
    scale_bytes = np.ascontiguousarray(np.stack(tables, axis=2)).view(np.uint8)
    packed = np.concatenate(
        [fours.reshape(num_tiles, num_groups, -1), scale_bytes.reshape(num_tiles, num_groups, SCALE_BYTES)], axis=2
    )
    return np.ascontiguousarray(packed)


@intrinsic
def _quantise_groups(  # type: ignore[no-untyped-def]
    typing_context: Any, levels, values, num_groups, quants, level_stride, scales, sums
):
    """A row of float32 as s · p with one scale a group; `sums` gets s Σ p."""
    if not simd.are_literal(levels):
        return None
    num_levels = levels.literal_value

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        values, num_groups, quants, level_step, scales, sums = arguments[1:]
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
            most = 127.0 if num_levels == 1 else 127.0 * STEPS
            is_zero = builder.fcmp_ordered("==", largest, simd.F32(0.0))
            inverse = builder.select(is_zero, simd.F32(0.0), builder.fdiv(simd.F32(most), largest))
            column_bytes = 2 if are_paired(num_levels) else 1
            target = simd.at(builder, quants, builder.mul(loop.index, I64(column_bytes * GROUP)))
            total = simd.ints(0)
            for i, half in enumerate(halves):
                scaled = builder.fmul(half, simd.splat(builder, inverse))
                quant = builder.fptosi(simd.call(builder, "llvm.rint.v16f32", FLOATS, scaled), INTS)
                total = builder.add(total, quant)
                if are_paired(num_levels):
                    _store_pairs(builder, quant, simd.at(builder, target, 2 * LANES * i))
                    continue
                coarse = quant
                if num_levels == 2:
                    coarse = builder.ashr(builder.add(quant, simd.ints(STEPS // 2)), simd.ints(STEP_BITS))
                    fine = builder.sub(quant, builder.shl(coarse, simd.ints(STEP_BITS)))
                    _store_bytes(builder, fine, simd.at(builder, builder.add(target, level_step), LANES * i))
                _store_bytes(builder, coarse, simd.at(builder, target, LANES * i))
            summed = simd.call(builder, "llvm.vector.reduce.add.v16i32", I32, total)
            scale = builder.fdiv(largest, simd.F32(most))
            place = builder.mul(loop.index, I64(4))
            simd.store(builder, scale, simd.at(builder, scales, place))
            scaled_sum = builder.fmul(scale, builder.sitofp(summed, simd.F32))
            simd.store(builder, scaled_sum, simd.at(builder, sums, place))
        return context.get_dummy_value()

    return types.void(levels, *([types.uint64] * 6)), generate


def _store_bytes(builder: Any, value: Any, place: Any) -> None:
    simd.store(builder, builder.trunc(value, ir.VectorType(simd.I8, LANES)), place)


def _store_pairs(builder: Any, value: Any, place: Any) -> None:
    order = ir.Constant(INTS, [first + place for first in range(0, LANES, 4) for place in PAIR_ORDER])
    shorts = builder.trunc(value, simd.SHORTS)
    simd.store(builder, builder.shuffle_vector(shorts, shorts, order), place)


@compiled()
def quantise_row(levels, values, quants, scales, sums):  # type: ignore[no-untyped-def]
    """values float32 [columns] → quants int8 [levels, at least columns], scales and sums float32 [groups].

    Where `are_paired(levels)`, the bytes of `quants` hold int16 [columns] instead, in `PAIR_ORDER`.
    """
    literally(levels)
    _quantise_groups(
        levels,
        np.uint64(values.ctypes.data),
        np.uint64(values.shape[0] // GROUP),
        np.uint64(quants.ctypes.data),
        np.uint64(quants.strides[0]),
        np.uint64(scales.ctypes.data),
        np.uint64(sums.ctypes.data),
    )


@compiled()
def _multiply_tile(  # type: ignore[no-untyped-def]
    bits, levels, tile, num_groups, num_rows, quants, level_step, quants_step, scales, sums, scales_step, output,
    output_step, following
):  # fmt: skip
    """One tile of weights times so many rows, all by address."""
    literally(bits)
    literally(levels)
    row = 0
    while row < num_rows:
        if MOST_ROWS >= 8 and num_rows - row >= 8:
            num_here = 8
            tile_rows(bits, 8, levels, tile, num_groups, quants, level_step, quants_step, scales, sums, scales_step,
                      output, output_step, following)  # fmt: skip
        elif num_rows - row >= 4:
            num_here = 4
            tile_rows(bits, 4, levels, tile, num_groups, quants, level_step, quants_step, scales, sums, scales_step,
                      output, output_step, following)  # fmt: skip
        elif num_rows - row >= 2:
            num_here = 2
            tile_rows(bits, 2, levels, tile, num_groups, quants, level_step, quants_step, scales, sums, scales_step,
                      output, output_step, following)  # fmt: skip
        else:
            num_here = 1
            tile_rows(bits, 1, levels, tile, num_groups, quants, level_step, quants_step, scales, sums, scales_step,
                      output, output_step, following)  # fmt: skip
        row += num_here
        quants += np.uint64(num_here) * quants_step
        scales += np.uint64(num_here) * scales_step
        sums += np.uint64(num_here) * scales_step
        output += np.uint64(num_here) * output_step


@compiled()
def _multiply_two_tiles(  # type: ignore[no-untyped-def]
    bits, levels, byte_tiles, tile, tile_step, num_groups, num_rows, quants, level_step, quants_step, scales, sums,
    scales_step, output, output_step, scratch, following
):  # fmt: skip
    """Two tiles of weights, side by side in the output, times so many rows, all by address."""
    literally(bits)
    literally(levels)
    literally(byte_tiles)
    done = 0
    if byte_tiles and num_groups % np.uint64(GROUPS_AT_ONCE) == 0:
        while num_rows - done >= MIN_BYTE_ROWS:
            num_here = min(num_rows - done, AT_ONCE)
            offset, scales_offset = np.uint64(done) * quants_step, np.uint64(done) * scales_step
            multiply_bytes(byte_tiles, bits, tile, tile_step, num_groups, np.uint64(num_here), quants + offset,
                           level_step, scales + scales_offset, sums + scales_offset, scales_step,
                           output + np.uint64(done) * output_step, output_step, scratch, following)  # fmt: skip
            done += num_here
    if done < num_rows:
        quants += np.uint64(done) * quants_step
        scales += np.uint64(done) * scales_step
        sums += np.uint64(done) * scales_step
        output += np.uint64(done) * output_step
        for i in range(TILES_AT_ONCE):
            step = np.uint64(i)
            _multiply_tile(bits, levels, tile + step * tile_step, num_groups, num_rows - done, quants, level_step,
                           quants_step, scales, sums, scales_step, output + step * np.uint64(4 * LANES),
                           output_step, following + step * tile_step)  # fmt: skip


@compiled()
def linear(  # type: ignore[no-untyped-def]
    bits,  # literal, as are the next two
    levels,
    byte_tiles,  # 1 where the thread's tiles have byte_tile_shapes, else 0
    counters,
    stage,
    packed,  # uint8 [tiles, groups, group_bytes]
    bias,  # float32 [out] or [0]
    quants,  # int8 [rows, levels, in]; with byte tiles, rows up to a multiple of 8
    scales,  # float32 [rows, groups]
    sums,
    output,  # float32 [rows, 16 tiles]
    scratch,  # address of SCRATCH_BYTES of this thread, on a cache line; any with no byte tiles
):
    """One layer for all rows, its tiles shared among the threads."""
    literally(bits)
    literally(levels)
    literally(byte_tiles)
    num_rows, num_tiles, num_groups = output.shape[0], packed.shape[0], np.uint64(packed.shape[1])
    packed_at, tile_step = np.uint64(packed.ctypes.data), np.uint64(packed.strides[0])
    level_step, quants_step = np.uint64(quants.strides[1]), np.uint64(quants.strides[0])
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
            _multiply_two_tiles(bits, levels, byte_tiles, tile_at, tile_step, num_groups, num_rows, quants_at,
                                level_step, quants_step, scales_at, sums_at, scales_step, target, output_step,
                                scratch, next_at)  # fmt: skip
        else:
            _multiply_tile(bits, levels, tile_at, num_groups, num_rows, quants_at, level_step, quants_step, scales_at,
                           sums_at, scales_step, target, output_step, next_at)  # fmt: skip
        if bias.shape[0]:
            for row in range(num_rows):
                for lane in range(LANES * tile, LANES * min(tile + TILES_AT_ONCE, num_tiles)):
                    output[row, lane] += bias[lane]


@compiled()
def gated_linear(  # type: ignore[no-untyped-def]
    bits,  # literal, as are the next two
    levels,
    byte_tiles,
    counters,
    stage,
    num_rows,
    packed,  # uint8 [tiles, groups, group_bytes]: the gates' tiles, then the ups'
    bias,  # float32 [out] or [0]
    quants,  # int8 [rows, levels, in], as are the next four as for `linear`
    scales,
    sums,
    scratch,
    strip,  # scratch of this thread, float32 [AT_ONCE, 2 GROUP], on a cache line
    gated_quants,  # int8 [rows, levels, inner], what the next layer takes, as are the next two
    gated_scales,  # float32 [rows, inner / GROUP]
    gated_sums,
):
    """Gate and up projection, SiLU(gate) · up, and its rounding: a group of 32 at a time stays in the nearest cache."""
    literally(bits)
    literally(levels)
    literally(byte_tiles)
    num_tiles, num_groups = packed.shape[0] // 2, np.uint64(packed.shape[1])
    packed_at, tile_step = np.uint64(packed.ctypes.data), np.uint64(packed.strides[0])
    level_step, quants_step = np.uint64(quants.strides[1]), np.uint64(quants.strides[0])
    scales_step, strip_step = np.uint64(scales.strides[0]), np.uint64(4 * 2 * GROUP)
    strip_at, half = np.uint64(strip.ctypes.data), np.uint64(4 * GROUP)
    inner = LANES * num_tiles
    gated_at, gated_step = np.uint64(gated_quants.ctypes.data), np.uint64(gated_quants.strides[0])
    gated_level_step, gated_scales_step = np.uint64(gated_quants.strides[1]), np.uint64(gated_scales.strides[0])
    gated_scales_at, gated_sums_at = np.uint64(gated_scales.ctypes.data), np.uint64(gated_sums.ctypes.data)
    column_bytes = COLUMN_BYTES[levels]
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
            _multiply_two_tiles(bits, levels, byte_tiles, gates_at, tile_step, num_groups, num_here, quants_at,
                                level_step, quants_step, scales_at, sums_at, scales_step, strip_at, strip_step,
                                scratch, ups_at)  # fmt: skip
            _multiply_two_tiles(bits, levels, byte_tiles, ups_at, tile_step, num_groups, num_here, quants_at,
                                level_step, quants_step, scales_at, sums_at, scales_step, strip_at + half, strip_step,
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
                _quantise_groups(levels, row_at, np.uint64(1),
                                 gated_at + row * gated_step + np.uint64(column_bytes * GROUP * group),
                                 gated_level_step, gated_scales_at + place, gated_sums_at + place)  # fmt: skip
