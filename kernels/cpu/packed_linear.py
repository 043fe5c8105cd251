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
from .simd import FLOATS, I32, I64, INTS, LANES, compiled
from .tile_rows import FOURS, GROUP, MOST_ROWS, PAIR_ORDER, SCALE_BYTES, STEP_BITS, STEPS, are_paired, tile_rows
from .work_sharing import items

LARGEST = float(np.finfo(np.float16).max)
ROWS_AT_ONCE = 4096  # that are rounded together: what rounding needs in between stays small
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


@compiled()
def linear(bits, levels, counters, stage, packed, bias, quants, scales, sums, output):  # type: ignore[no-untyped-def]
    """One layer for all rows, its tiles shared among the threads.

    packed: uint8 [tiles, groups, group_bytes]; bias: float32 [out] or [0]; quants: int8 [rows, levels, in];
    scales, sums: float32 [rows, groups]; output: float32 [rows, 16 tiles].
    """
    literally(bits)
    literally(levels)
    num_rows, num_tiles, num_groups = quants.shape[0], packed.shape[0], np.uint64(packed.shape[1])
    tile_bytes = np.uint64(packed.strides[0])
    level_step = np.uint64(quants.strides[1])
    quants_step, scales_step = np.uint64(quants.strides[0]), np.uint64(scales.strides[0])
    output_step = np.uint64(output.strides[0])
    for tile in items(counters, stage, num_tiles, max(1, num_tiles // CLAIMS_PER_STAGE)):
        tile_at = np.uint64(packed.ctypes.data) + np.uint64(tile) * tile_bytes
        quants_at, scales_at = np.uint64(quants.ctypes.data), np.uint64(scales.ctypes.data)
        sums_at = np.uint64(sums.ctypes.data)
        output_at = np.uint64(output.ctypes.data) + np.uint64(4 * LANES * tile)
        row = 0
        while row < num_rows:
            if MOST_ROWS >= 8 and num_rows - row >= 8:
                num_here = 8
                tile_rows(bits, 8, levels, tile_at, num_groups, quants_at, level_step, quants_step, scales_at,
                           sums_at, scales_step, output_at, output_step)  # fmt: skip
            elif num_rows - row >= 4:
                num_here = 4
                tile_rows(bits, 4, levels, tile_at, num_groups, quants_at, level_step, quants_step, scales_at,
                           sums_at, scales_step, output_at, output_step)  # fmt: skip
            elif num_rows - row >= 2:
                num_here = 2
                tile_rows(bits, 2, levels, tile_at, num_groups, quants_at, level_step, quants_step, scales_at,
                           sums_at, scales_step, output_at, output_step)  # fmt: skip
            else:
                num_here = 1
                tile_rows(bits, 1, levels, tile_at, num_groups, quants_at, level_step, quants_step, scales_at,
                           sums_at, scales_step, output_at, output_step)  # fmt: skip
            row += num_here
            quants_at += np.uint64(num_here) * quants_step
            scales_at += np.uint64(num_here) * scales_step
            sums_at += np.uint64(num_here) * scales_step
            output_at += np.uint64(num_here) * output_step
        if bias.shape[0]:
            for row in range(num_rows):
                for lane in range(LANES * tile, LANES * (tile + 1)):
                    output[row, lane] += bias[lane]


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
