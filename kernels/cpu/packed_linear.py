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
from .rows import gate_coarse_vectors, gate_vectors
from .simd import FLOAT32, FLOATS, I32, I64, INTS, LANES, compiled
from .tile_rows import (
    ARE_PAIRED,
    COARSE_GROUP_BYTES,
    COLUMN_BYTES,
    GROUP,
    MOST_ROWS,
    PAIR_ORDER,
    START_BYTES,
    STEP_BITS,
    STEPS,
    tile_rows,
)
from .work_sharing import items_ahead

MOST = 127.0 * STEPS  # that two bytes stand for
MIN_BYTE_ROWS = 5
"""For fewer rows than eight a product of tiles takes as long as for eight."""
CLAIMS_PER_STAGE = 48  # enough that threads end together, few enough that claiming costs nothing


@intrinsic
def _quantise_groups(  # type: ignore[no-untyped-def]
    typing_context: Any, middle, values, num_groups, quants, fine_step, scales, sums
):
    """A row of float32 as s · p with one scale a group; `sums` gets s Σ p. With a middle of the weights, as `tile_rows`
    wants a coarse row; with 0 an exact one."""
    if not simd.are_literal(middle):
        return None
    leaves_fine = middle.literal_value > 0

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        values, num_groups, quants, fine_step, scales, sums = arguments[1:]
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
            group_step = COARSE_GROUP_BYTES if leaves_fine else COLUMN_BYTES * GROUP
            target = simd.at(builder, quants, builder.mul(loop.index, I64(group_step)))
            total, coarse_total = simd.ints(0), simd.ints(0)
            for i, half in enumerate(halves):
                scaled = builder.fmul(half, simd.splat(builder, inverse))
                quant = builder.fptosi(simd.call(builder, "llvm.rint.v16f32", FLOATS, scaled), INTS)
                total = builder.add(total, quant)
                if ARE_PAIRED:
                    _store_pairs(builder, quant, simd.at(builder, target, 2 * LANES * i))
                    continue
                coarse = builder.ashr(builder.add(quant, simd.ints(STEPS // 2)), simd.ints(STEP_BITS))
                start_bytes = START_BYTES if leaves_fine else 0
                _store_bytes(builder, coarse, simd.at(builder, target, start_bytes + LANES * i))
                coarse_total = builder.add(coarse_total, coarse)
                if not leaves_fine:
                    fine = builder.sub(quant, builder.shl(coarse, simd.ints(STEP_BITS)))
                    _store_bytes(builder, fine, simd.at(builder, builder.add(target, fine_step), LANES * i))
            if leaves_fine:
                # Multiplied as a vector: by way of a scalar register storing it takes twice as long.
                start = builder.mul(coarse_total, simd.ints(-middle.literal_value))
                summed, start = _two_sums(builder, total, start)
                simd.store(builder, builder.bitcast(start, simd.F32), target)
            else:
                summed = simd.call(builder, "llvm.vector.reduce.add.v16i32", I32, total)
            scale = builder.fdiv(largest, simd.F32(MOST))
            place = builder.mul(loop.index, I64(4))
            simd.store(builder, scale, simd.at(builder, scales, place))
            scaled_sum = builder.fmul(scale, builder.sitofp(summed, simd.F32))
            simd.store(builder, scaled_sum, simd.at(builder, sums, place))
        return context.get_dummy_value()

    return types.void(middle, *([types.uint64] * 6)), generate


def _two_sums(builder: Any, first: Any, second: Any) -> tuple[Any, Any]:
    """The sums of the lanes of two vectors of int32, side by side."""
    half = LANES // 2
    places = [[*range(start, start + half), *range(LANES + start, LANES + start + half)] for start in (0, half)]
    both = builder.add(*(builder.shuffle_vector(first, second, ir.Constant(INTS, lanes)) for lanes in places))
    for step in (4, 2, 1):
        lanes = [lane // half * half + (lane + step) % half for lane in range(LANES)]
        both = builder.add(both, builder.shuffle_vector(both, both, ir.Constant(INTS, lanes)))
    return builder.extract_element(both, I32(0)), builder.extract_element(both, I32(half))


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
    round_row(0, False, np.uint64(values.ctypes.data), np.uint64(values.shape[0] // GROUP),
              np.uint64(quants.ctypes.data), np.uint64(quants.strides[0]), np.uint64(scales.ctypes.data),
              np.uint64(sums.ctypes.data))  # fmt: skip


@compiled()
def round_row(  # type: ignore[no-untyped-def]
    middle,  # literal: of the weights, where rows may be coarse (tile_rows.py), else 0
    is_coarse, values, num_groups, quants, fine_step, scales, sums
):  # fmt: skip
    """`quantise_row` by address."""
    literally(middle)
    if middle and is_coarse:
        _quantise_groups(middle, values, num_groups, quants, fine_step, scales, sums)
    else:
        _quantise_groups(0, values, num_groups, quants, fine_step, scales, sums)


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
            tile_rows(bits, 0, 8, tile, num_groups, quants, fine_step, quants_step, scales, sums, scales_step,
                      output, output_step, following)  # fmt: skip
        elif num_rows - row >= 4:
            num_here = 4
            tile_rows(bits, 0, 4, tile, num_groups, quants, fine_step, quants_step, scales, sums, scales_step,
                      output, output_step, following)  # fmt: skip
        elif num_rows - row >= 2:
            num_here = 2
            tile_rows(bits, 0, 2, tile, num_groups, quants, fine_step, quants_step, scales, sums, scales_step,
                      output, output_step, following)  # fmt: skip
        else:
            num_here = 1
            tile_rows(bits, 0, 1, tile, num_groups, quants, fine_step, quants_step, scales, sums, scales_step,
                      output, output_step, following)  # fmt: skip
        row += num_here
        quants += np.uint64(num_here) * quants_step
        scales += np.uint64(num_here) * scales_step
        sums += np.uint64(num_here) * scales_step
        output += np.uint64(num_here) * output_step


@compiled()
def _multiply_coarse_rows(  # type: ignore[no-untyped-def]
    bits, tile, num_groups, num_rows, quants, fine_step, quants_step, scales, sums, scales_step, output,
    output_step, following
):  # fmt: skip
    """As `_multiply_tile`, for coarse rows, whose number is a multiple of MOST_ROWS."""
    literally(bits)
    for _ in range(0, num_rows, MOST_ROWS):
        tile_rows(bits, 1, MOST_ROWS, tile, num_groups, quants, fine_step, quants_step, scales, sums, scales_step,
                  output, output_step, following)  # fmt: skip
        quants += np.uint64(MOST_ROWS) * quants_step
        scales += np.uint64(MOST_ROWS) * scales_step
        sums += np.uint64(MOST_ROWS) * scales_step
        output += np.uint64(MOST_ROWS) * output_step


@compiled()
def _multiply_two_tiles(  # type: ignore[no-untyped-def]
    bits, byte_tiles, middle, tile, tile_step, num_groups, num_coarse, num_rows, quants, fine_step, quants_step,
    scales, sums, scales_step, output, output_step, scratch, following
):  # fmt: skip
    """Two tiles of weights, side by side in the output, times so many rows, the coarse ones first, all by address."""
    literally(bits)
    literally(byte_tiles)
    literally(middle)
    done = 0
    if middle and num_coarse:
        for i in range(TILES_AT_ONCE):
            step = np.uint64(i)
            _multiply_coarse_rows(bits, tile + step * tile_step, num_groups, num_coarse, quants, fine_step, quants_step,
                                  scales, sums, scales_step, output + step * np.uint64(4 * LANES), output_step,
                                  following + step * tile_step)  # fmt: skip
        done = num_coarse
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
    middle,  # of the weights where rows may be coarse, else 0; literal
    counters,
    stage,
    spans,  # [spans, 3] int64: first row, number of coarse rows, a multiple of MOST_ROWS, and of exact ones after them
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
    literally(middle)
    num_tiles, num_groups = packed.shape[0], np.uint64(packed.shape[1])
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
    per_claim = max(1, num_pairs // CLAIMS_PER_STAGE)
    for item, next_item in items_ahead(counters, stage, spans.shape[0] * num_pairs, per_claim):
        span, tile = item // num_pairs, TILES_AT_ONCE * (item % num_pairs)
        following = next_item if next_item >= 0 else item
        next_at = packed_at + np.uint64(TILES_AT_ONCE * (following % num_pairs)) * tile_step
        tile_at = packed_at + np.uint64(tile) * tile_step
        first, num_coarse, num_exact = spans[span, 0], spans[span, 1], spans[span, 2]
        row = np.uint64(first)
        here, scales_here, sums_here = (
            quants_at + row * quants_step,
            scales_at + row * scales_step,
            sums_at + row * scales_step,
        )
        target = output_at + row * output_step + np.uint64(4 * LANES * tile)
        if tile + 1 < num_tiles:
            _multiply_two_tiles(bits, byte_tiles, middle, tile_at, tile_step, num_groups, num_coarse,
                                num_coarse + num_exact, here, fine_step, quants_step, scales_here, sums_here,
                                scales_step, target, output_step, scratch, next_at)  # fmt: skip
        else:
            if middle and num_coarse:
                _multiply_coarse_rows(bits, tile_at, num_groups, num_coarse, here, fine_step, quants_step, scales_here,
                                      sums_here, scales_step, target, output_step, next_at)  # fmt: skip
            coarse = np.uint64(num_coarse)
            _multiply_tile(bits, tile_at, num_groups, num_exact, here + coarse * quants_step, fine_step, quants_step,
                           scales_here + coarse * scales_step, sums_here + coarse * scales_step, scales_step,
                           target + coarse * output_step, output_step, next_at)  # fmt: skip
        if bias.shape[0]:
            for i in range(first, first + num_coarse + num_exact):
                for lane in range(LANES * tile, LANES * min(tile + TILES_AT_ONCE, num_tiles)):
                    output[i, lane] += bias[lane]


@compiled()
def gated_linear(  # type: ignore[no-untyped-def]
    bits,  # literal, as are the next two
    byte_tiles,
    middle,
    counters,
    stage,
    spans,  # as for `linear`
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
    literally(middle)
    num_tiles, num_groups = packed.shape[0] // 2, np.uint64(packed.shape[1])
    packed_at, tile_step = np.uint64(packed.ctypes.data), np.uint64(packed.strides[0])
    fine_step, quants_step = np.uint64(quants.strides[1]), np.uint64(quants.strides[0])
    scales_step, strip_step = np.uint64(scales.strides[0]), np.uint64(4 * 2 * GROUP)
    strip_at, half = np.uint64(strip.ctypes.data), np.uint64(4 * GROUP)
    inner = LANES * num_tiles
    gated_at, gated_step = np.uint64(gated_quants.ctypes.data), np.uint64(gated_quants.strides[0])
    gated_fine_step, gated_scales_step = np.uint64(gated_quants.strides[1]), np.uint64(gated_scales.strides[0])
    gated_scales_at, gated_sums_at = np.uint64(gated_scales.ctypes.data), np.uint64(gated_sums.ctypes.data)
    num_inner = inner // GROUP
    for item, next_item in items_ahead(counters, stage, spans.shape[0] * num_inner, 1):
        span, group = item // num_inner, item % num_inner
        following = (next_item if next_item >= 0 else item) % num_inner
        next_at = packed_at + np.uint64(TILES_AT_ONCE * following) * tile_step
        gates_at = packed_at + np.uint64(TILES_AT_ONCE * group) * tile_step
        ups_at = gates_at + np.uint64(num_tiles) * tile_step
        begin, num_here_coarse = spans[span, 0], spans[span, 1]
        last = begin + num_here_coarse + spans[span, 2]
        for first in range(begin, last, AT_ONCE):
            num_here, row = min(AT_ONCE, last - first), np.uint64(first)
            num_coarse = AT_ONCE if middle and first < begin + num_here_coarse else 0
            quants_at = np.uint64(quants.ctypes.data) + row * quants_step
            scales_at, sums_at = (
                np.uint64(scales.ctypes.data) + row * scales_step,
                np.uint64(sums.ctypes.data) + row * scales_step,
            )
            _multiply_two_tiles(bits, byte_tiles, middle, gates_at, tile_step, num_groups, num_coarse,
                                num_here, quants_at, fine_step, quants_step, scales_at, sums_at, scales_step,
                                strip_at, strip_step, scratch, ups_at)  # fmt: skip
            _multiply_two_tiles(bits, byte_tiles, middle, ups_at, tile_step, num_groups, num_coarse,
                                num_here, quants_at, fine_step, quants_step, scales_at, sums_at, scales_step,
                                strip_at + half, strip_step, scratch, next_at)  # fmt: skip
            if bias.shape[0]:
                for i in range(num_here):
                    for lane in range(GROUP):
                        strip[i, lane] += bias[GROUP * group + lane]
                        strip[i, GROUP + lane] += bias[inner + GROUP * group + lane]
            for i in range(num_here):
                row, row_at = np.uint64(first + i), strip_at + np.uint64(i) * strip_step
                if middle and num_coarse:
                    gate_coarse_vectors(row_at, row_at + half, row_at, np.uint64(GROUP // LANES))
                else:
                    gate_vectors(FLOAT32, row_at, row_at + half, row_at, np.uint64(GROUP // LANES))
                place = row * gated_scales_step + np.uint64(4 * group)
                group_bytes_here = COARSE_GROUP_BYTES if num_coarse else COLUMN_BYTES * GROUP
                target = gated_at + row * gated_step + np.uint64(group_bytes_here * group)
                round_row(middle, num_coarse > 0, row_at, np.uint64(1), target, gated_fine_step,
                          gated_scales_at + place, gated_sums_at + place)  # fmt: skip
