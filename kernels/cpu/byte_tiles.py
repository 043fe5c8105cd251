"""Packed linear layers for eight rows of activations, by matrix tiles of bytes: Intel's AMX for int8.

One instruction adds the products of 16 rows of 32 signed bytes with 32 rows of 16 unsigned bytes to a tile of int32.
Eight rows of activations of two bytes are just 16 rows: a row's coarse bytes, then its fine ones. The weights of a
group of 32 columns lie in the order in which a tile wants them; those of 4 bits are spread to bytes first. Sums are
exact, and what follows is what tile_rows.py does, so each row gets the same to the bit.

While a tile is multiplied, the sums of the one before it are scaled and added up, and the next one's weights spread:
all that waits in the core's nearest cache.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from . import amx, simd
from .amx import TILE_BYTES
from .simd import FEATURES, FLOATS, I8, I64, INTS, LANES, compiled
from .tile_rows import ACTIVATION_BYTES, FOURS, GROUP, SCALE_BYTES, STEP_BITS, fetch_group, group_bytes

AT_ONCE = 8  # rows of activations
TILES_AT_ONCE = GROUPS_AT_ONCE = 2  # their four sums fill as many tile registers
NUM_SUMS = TILES_AT_ONCE * GROUPS_AT_ONCE
SPREAD_BYTES = GROUP * LANES
OUTPUT_BYTES = 4 * LANES
TOTAL_BYTES = TILES_AT_ONCE * OUTPUT_BYTES  # of one row
SCRATCH_BYTES = AT_ONCE * TOTAL_BYTES + NUM_SUMS * (SPREAD_BYTES + 2 * TILE_BYTES)
FIRST_ACTIVATIONS, FIRST_WEIGHTS = NUM_SUMS, NUM_SUMS + 2  # tile registers
BYTES = ir.VectorType(I8, 4 * LANES)


def has_byte_tiles() -> bool:
    """Whether this process may multiply tiles of bytes."""
    return bool(FEATURES.get("amx-int8")) and amx.has_tiles()


def byte_tile_shapes() -> NDArray[np.uint8]:
    """What `amx.configure` reads: four tiles of sums, two of activations, two of weights."""
    shapes = np.zeros(64, np.uint8)
    shapes[0] = 1  # the palette
    row_bytes, rows = shapes[16:32:2], shapes[48:56]
    row_bytes[:] = amx.ROW_BYTES
    rows[:] = amx.ROWS
    row_bytes[FIRST_ACTIVATIONS:FIRST_WEIGHTS] = GROUP
    rows[FIRST_WEIGHTS:] = FOURS
    return shapes


byte_tile_shapes_compiled = compiled()(byte_tile_shapes)
"""The same for compiled functions."""


@intrinsic
def multiply_bytes(  # type: ignore[no-untyped-def]
    typing_context: Any,
    is_there,  # 0 where there are no such tiles: then nothing is compiled; literal, as is the next
    bits,
    tile,  # address of two tiles of weights [groups, group_bytes]
    tile_step,  # bytes from the first to the second
    num_groups,  # even
    num_rows,  # of activations that are wanted, up to 8
    quants,  # address of int8 [8, ACTIVATION_BYTES, columns], whatever rows are behind the wanted ones
    fine_step,  # bytes from a row's coarse bytes to its fine ones, and from there to the next row's
    scales,  # address of float32 [rows, groups], s
    sums,  # address of float32 [rows, groups], s Σ p
    scales_step,
    output,  # address of float32 [rows, 32]
    output_step,
    scratch,  # SCRATCH_BYTES of this thread, on a cache line
    following,  # address of the first of the two tiles that are wanted next: they are fetched meanwhile
):
    """Two tiles of weights times up to eight rows of activations. The thread's tiles have `byte_tile_shapes`."""
    if not simd.are_literal(is_there, bits):
        return None
    num_bits = bits.literal_value
    pair_bytes = GROUPS_AT_ONCE * group_bytes(num_bits)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if not is_there.literal_value:
            return context.get_dummy_value()
        (tile, tile_step, num_groups, num_rows, quants, fine_step, scales, sums, scales_step, output, output_step,
         totals, following) = arguments[2:]  # fmt: skip
        tiles = [tile, builder.add(tile, tile_step)]
        next_tiles = [following, builder.add(following, tile_step)]
        spread = simd.at(builder, totals, AT_ONCE * TOTAL_BYTES)
        summed = simd.at(builder, spread, NUM_SUMS * SPREAD_BYTES)
        num_pairs = builder.lshr(num_groups, I64(1))
        every_sum = [(t, g) for t in range(TILES_AT_ONCE) for g in range(GROUPS_AT_ONCE)]

        def group_at(pair: Any, t: int, g: int, those: list[Any] = tiles) -> Any:
            offset = builder.add(builder.mul(pair, I64(pair_bytes)), I64(g * group_bytes(num_bits)))
            return simd.at(builder, those[t], offset)

        def spread_weights(pair: Any) -> None:
            for number, (t, g) in enumerate(every_sum):
                _spread(builder, group_at(pair, t, g), simd.at(builder, spread, number * SPREAD_BYTES))

        def multiply(pair: Any) -> None:
            for number in range(NUM_SUMS):
                amx.zero(builder, number)
            for g in range(GROUPS_AT_ONCE):
                offset = builder.add(builder.mul(pair, I64(GROUPS_AT_ONCE * GROUP)), I64(g * GROUP))
                amx.load_tile(builder, FIRST_ACTIVATIONS + g, simd.at(builder, quants, offset), fine_step)
                for t in range(TILES_AT_ONCE):
                    number = every_sum.index((t, g))
                    spread_at = simd.at(builder, spread, number * SPREAD_BYTES)
                    amx.load_tile(builder, FIRST_WEIGHTS + t, spread_at if num_bits == 4 else group_at(pair, t, g))
                    simd.call(builder, "llvm.x86.tdpbsud", ir.VoidType(), I8(number), I8(FIRST_ACTIVATIONS + g),
                              I8(FIRST_WEIGHTS + t))  # fmt: skip

        def add_up(pair: Any, summed_here: Any) -> None:
            tables = [simd.at(builder, group_at(pair, *place), group_bytes(num_bits) - SCALE_BYTES)
                      for place in every_sum]  # fmt: skip
            weight_scales = [simd.load_floats(builder, table, simd.FLOAT16) for table in tables]
            minima = [
                simd.load_floats(builder, simd.at(builder, table, SCALE_BYTES // 2), simd.FLOAT16) for table in tables
            ]
            with cgutils.for_range(builder, num_rows) as rows:
                place = builder.add(builder.mul(rows.index, scales_step), builder.mul(pair, I64(4 * GROUPS_AT_ONCE)))
                row_scales, row_sums = (
                    [
                        simd.splat(builder, simd.load(builder, simd.at(builder, simd.at(builder, start, place), 4 * g),
                                                      simd.F32))
                        for g in range(GROUPS_AT_ONCE)
                    ]
                    for start in (scales, sums)
                )  # fmt: skip
                total_at = simd.at(builder, totals, builder.mul(rows.index, I64(TOTAL_BYTES)))
                row_at = simd.at(builder, summed_here, builder.mul(rows.index, I64(ACTIVATION_BYTES * amx.ROW_BYTES)))
                for t in range(TILES_AT_ONCE):
                    place = simd.at(builder, total_at, t * OUTPUT_BYTES)
                    total = simd.load(builder, place, FLOATS)
                    for g in range(GROUPS_AT_ONCE):
                        number = every_sum.index((t, g))
                        coarse_at = simd.at(builder, row_at, number * TILE_BYTES)
                        coarse = simd.load(builder, coarse_at, INTS)
                        fine = simd.load(builder, simd.at(builder, coarse_at, amx.ROW_BYTES), INTS)
                        product = builder.add(builder.shl(coarse, simd.ints(STEP_BITS)), fine)
                        factor = builder.fmul(weight_scales[number], row_scales[g])
                        total = simd.fma(builder, builder.sitofp(product, FLOATS), factor, total)
                        total = simd.fma(builder, minima[number], row_sums[g], total)
                    simd.store(builder, total, place)

        def summed_of(pair: Any) -> Any:
            return simd.at(builder, summed, builder.mul(builder.and_(pair, I64(1)), I64(NUM_SUMS * TILE_BYTES)))

        with cgutils.for_range(builder, num_rows) as rows:
            for t in range(TILES_AT_ONCE):
                place = simd.at(builder, totals, builder.mul(rows.index, I64(TOTAL_BYTES)))
                simd.store(builder, simd.floats(0.0), simd.at(builder, place, t * OUTPUT_BYTES))
        if num_bits == 4:
            spread_weights(I64(0))
        with cgutils.for_range(builder, builder.add(num_pairs, I64(1))) as loop:
            pair, is_one = loop.index, builder.icmp_unsigned("<", loop.index, num_pairs)
            with builder.if_then(is_one):
                multiply(pair)
                for place in every_sum:
                    fetch_group(builder, group_at(pair, *place, next_tiles), num_bits)
            with builder.if_then(builder.icmp_unsigned(">", pair, I64(0))):
                last = builder.sub(pair, I64(1))
                add_up(last, summed_of(last))
            following = builder.add(pair, I64(1))
            if num_bits == 4:
                # Before the sums are stored: a load waits for stores before it whose addresses end alike.
                with builder.if_then(builder.icmp_unsigned("<", following, num_pairs)):
                    spread_weights(following)
            with builder.if_then(is_one):
                for number in range(NUM_SUMS):
                    amx.store_tile(builder, number, simd.at(builder, summed_of(pair), number * TILE_BYTES))
        with cgutils.for_range(builder, num_rows) as rows:
            source = simd.at(builder, totals, builder.mul(rows.index, I64(TOTAL_BYTES)))
            target = simd.at(builder, output, builder.mul(rows.index, output_step))
            for t in range(TILES_AT_ONCE):
                value = simd.load(builder, simd.at(builder, source, t * OUTPUT_BYTES), FLOATS)
                simd.store(builder, value, simd.at(builder, target, t * OUTPUT_BYTES))
        return context.get_dummy_value()

    return types.void(is_there, bits, *([types.uint64] * 13)), generate


def _spread(builder: Any, group: Any, target: Any) -> None:
    """A group's weights of 4 bits as bytes: the low halves first, as `pack` put them."""
    low_bits = ir.Constant(BYTES, [15] * BYTES.count)
    for i in range(FOURS // 2):
        both = simd.load(builder, simd.at(builder, group, BYTES.count * i), BYTES)
        high = builder.bitcast(builder.lshr(builder.bitcast(both, INTS), simd.ints(4)), BYTES)
        for half, weights in enumerate((both, high)):
            place = simd.at(builder, target, BYTES.count * (i + FOURS // 2 * half))
            simd.store(builder, builder.and_(weights, low_bits), place)
