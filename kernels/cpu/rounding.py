"""Activations rounded to two bytes, or to one: a scale and a sum for each group of columns.

An activation is x = s · p, with one s for each group of 32, of whose values the largest becomes 127 · 256. p has two
bytes, p = 256 · coarse + fine, the coarse one in [-127, 127]. Of a coarse row (row_spans.py) the coarse bytes alone are
kept, as tile_rows.py wants them.
"""

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import literally, types
from numba.core import cgutils
from numba.extending import intrinsic

from . import simd
from .simd import FLOATS, I32, I64, INTS, LANES, compiled
from .tile_rows import (
    ARE_PAIRED,
    COARSE_GROUP_BYTES,
    COLUMN_BYTES,
    GROUP,
    PAIR_ORDER,
    START_BYTES,
    STEP_BITS,
    STEPS,
)

MOST = 127.0 * STEPS  # that two bytes stand for


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
