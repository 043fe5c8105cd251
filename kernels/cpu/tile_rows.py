"""One tile of weights times a few rows of activations: where a packed step spends most of its time.

The 16 outputs of a tile are computed `REGISTER_LANES` at a time, so that the sums of several rows fit the registers. A
group's products are summed as integers, exactly, and the groups in order: every processor gives the same bits.

Rows may be coarse: then their fine bytes f aren't multiplied, p = 256 c + f. What these would have added,  d s Σ q f
over a group, is for the most part the middle of all weights times their sum, and that is left in:

    y = d (256 s) Σ (q - middle) c  +  (m + middle · d) s Σ p

So only what a weight differs from the middle is multiplied with an activation of one byte.
"""

from collections.abc import Iterator
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from . import simd
from .integer_dot import MULTIPLIES_BYTES, WEIGHTS_ARE_SIGNED, bytes_of, dot_fours, dot_pairs, shorts_of
from .simd import CACHE_LINE, I32, I64, LANES, NUM_REGISTERS, REGISTER_LANES, Builder, Value

GROUP = 32  # columns that share a scale
STEP_BITS = 8
STEPS = 1 << STEP_BITS  # fine steps in a coarse one: a shift instead of a product
FOURS = GROUP // 4
SCALE_BYTES = 2 * 2 * LANES
MOST_ROWS = 8 if NUM_REGISTERS >= 32 else 4
"""Of activations that share one reading of the weights, so that their sums stay in registers."""

ACTIVATION_BYTES = 2
"""A coarse one and a fine one: one alone flips close decisions between tokens (docs/performance.md)."""

START_BYTES = 4
COARSE_GROUP_BYTES = START_BYTES + GROUP
"""Of a coarse row: an int32, -middle Σ c, then the coarse bytes c."""

ARE_PAIRED = not MULTIPLIES_BYTES
"""Whether an activation is kept as one number of 16 bits, not as two bytes apart."""

COLUMN_BYTES = ACTIVATION_BYTES if ARE_PAIRED else 1  # from one column of activations to the next

PAIR_ORDER = (0, 2, 1, 3)
"""How each four columns follow each other where they are paired: one mask splits the weights then."""


def middle_of(bits: int) -> int:
    """Of the weights q, as a whole number."""
    return 1 << (bits - 1)


def group_bytes(bits: int) -> int:
    """Bytes of one group of a tile."""
    return GROUP * LANES * bits // 8 + SCALE_BYTES


@intrinsic
def tile_rows(  # type: ignore[no-untyped-def]
    typing_context: Any,
    bits,  # 4 or 8, literal
    is_coarse,  # 0 or 1, literal: with 1, a row's groups are COARSE_GROUP_BYTES each
    rows,  # of activations that share one reading of the weights, literal
    tile,  # address of [groups, group_bytes]
    num_groups,
    quants,  # address of int8 [rows, ACTIVATION_BYTES, columns], or of int16 [rows, columns] where they are paired
    fine_step,  # bytes from the coarse bytes to the fine ones
    quants_stride,  # bytes from row to row
    scales,  # address of float32 [rows, groups], s
    sums,  # address of float32 [rows, groups], s Σ p
    scales_stride,
    output,  # address of float32 [rows, 16]
    output_stride,
    following,  # address of the tile that is wanted next: it is fetched meanwhile
):
    """One tile of weights times a few rows of activations."""
    if not simd.are_literal(bits, is_coarse, rows):
        return None
    num_bits, num_rows, leaves_fine = bits.literal_value, rows.literal_value, bool(is_coarse.literal_value)
    lanes = REGISTER_LANES

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        tile, groups, quants, fine_step, quants_step, scales, sums, scales_step, output, output_step, following = (
            arguments[3:]
        )
        zeros = simd.floats(0.0, lanes)
        totals = [simd.variable(builder, zeros) for _ in range(num_rows)]
        row_quants = [simd.at(builder, quants, builder.mul(quants_step, I64(row))) for row in range(num_rows)]
        row_scales = [builder.mul(scales_step, I64(row)) for row in range(num_rows)]
        # A part after the other: side by side, LLVM would load each activation once for all parts, and then keep it
        # in memory for want of registers.
        with cgutils.for_range(builder, I64(LANES // lanes)) as parts:
            fours = simd.at(builder, tile, builder.mul(parts.index, I64(4 * lanes)))
            scale_offset = builder.mul(parts.index, I64(2 * lanes))
            scale_offset = builder.add(scale_offset, I64(group_bytes(num_bits) - SCALE_BYTES))
            for total in totals:
                builder.store(zeros, total)
            with cgutils.for_range(builder, groups) as loop:
                group = builder.mul(loop.index, I64(group_bytes(num_bits)))
                group_step = COARSE_GROUP_BYTES if leaves_fine else COLUMN_BYTES * GROUP
                offset = builder.mul(loop.index, I64(group_step))
                here = [simd.at(builder, place, offset) for place in row_quants]
                scale_at = simd.at(builder, simd.at(builder, tile, group), scale_offset)
                weight_scale = simd.load_floats(builder, scale_at, simd.FLOAT16, lanes)
                minimum_at = simd.at(builder, scale_at, SCALE_BYTES // 2)
                weight_minimum = simd.load_floats(builder, minimum_at, simd.FLOAT16, lanes)
                if leaves_fine:
                    middle = builder.fmul(weight_scale, simd.floats(middle_of(num_bits), lanes))
                    weight_minimum = builder.fadd(weight_minimum, middle)
                    weight_scale = builder.fmul(weight_scale, simd.floats(STEPS, lanes))
                fetch_group(builder, simd.at(builder, following, group), num_bits)
                starts = None
                if leaves_fine:
                    starts = [simd.load(builder, place, I32) for place in here]
                    here = [simd.at(builder, place, START_BYTES) for place in here]
                products = _products(builder, simd.at(builder, fours, group), num_bits, here, fine_step, starts)
                for row, product in enumerate(products):
                    place = simd.at(builder, row_scales[row], builder.mul(loop.index, I64(4)))
                    scale = simd.load(builder, builder.add(scales, place), simd.F32)
                    scaled_sum = simd.load(builder, builder.add(sums, place), simd.F32)
                    factor = builder.fmul(weight_scale, simd.splat(builder, scale, lanes))
                    total = simd.fma(builder, builder.sitofp(product, zeros.type), factor, builder.load(totals[row]))
                    total = simd.fma(builder, weight_minimum, simd.splat(builder, scaled_sum, lanes), total)
                    builder.store(total, totals[row])
            for row, total in enumerate(totals):
                place = simd.at(builder, output, builder.mul(output_step, I64(row)))
                place = simd.at(builder, place, builder.mul(parts.index, I64(4 * lanes)))
                simd.store(builder, builder.load(total), place)
        return context.get_dummy_value()

    return types.void(bits, is_coarse, rows, *([types.uint64] * 11)), generate


def fetch_group(builder: Builder, group: Value, num_bits: int) -> None:
    """Has one group of a tile fetched meanwhile."""
    for line in range(0, group_bytes(num_bits), CACHE_LINE):
        simd.prefetch(builder, simd.at(builder, group, line))


def _products(
    builder: Builder, fours: Value, num_bits: int, rows: list[Value], fine_step: Value, starts: list[Value] | None
) -> list[Value]:
    """Of each row, Σ q p over one group, for as many rows of weights as a register has lanes; with `starts` a row's
    start and Σ q c, which is Σ (q - middle) c."""
    lanes = REGISTER_LANES
    flipped = WEIGHTS_ARE_SIGNED and num_bits == 8
    kind = shorts_of(lanes) if ARE_PAIRED else bytes_of(lanes)
    num_sums = 1 if ARE_PAIRED or starts is not None else ACTIVATION_BYTES
    sums = [[simd.variable(builder, simd.ints(0, lanes)) for _ in range(num_sums)] for _ in rows]
    for row, totals in enumerate(sums):
        for total in totals:
            # Bytes that count as signed have lost the middle already.
            start = simd.ints(0, lanes) if starts is None or flipped else simd.splat(builder, starts[row], lanes)
            builder.store(start, total)

    def add_columns(index: Value) -> None:
        stored = simd.load(builder, simd.at(builder, fours, builder.mul(index, I64(4 * LANES))), kind)
        if flipped:
            stored = builder.xor(stored, _all(stored, 0x80))
        here = builder.mul(index, I64(4 * COLUMN_BYTES))
        for offset, weights in (_pairs if ARE_PAIRED else _fours)(builder, stored, num_bits):
            for quants, totals in zip(rows, sums, strict=True):
                place = simd.at(builder, builder.add(quants, here), offset)
                for total in totals:
                    columns = builder.bitcast(simd.splat(builder, simd.load(builder, place, I32), lanes), kind)
                    dot = dot_pairs if ARE_PAIRED else dot_fours
                    builder.store(dot(builder, builder.load(total), weights, columns), total)
                    place = builder.add(place, fine_step)

    num_stored = FOURS * num_bits // 8
    if NUM_REGISTERS >= 32:
        for i in range(num_stored):
            add_columns(I64(i))
    else:  # a loop, though a short one: LLVM computes straight code row by row, with all weights kept in memory
        with cgutils.for_range(builder, I64(num_stored)) as loop:
            add_columns(loop.index)

    products = []
    for place, totals in zip(rows, sums, strict=True):
        by_byte = []
        for total in totals:
            value = builder.load(total)
            regains = flipped and starts is None
            by_byte.append(builder.add(value, _times_128(builder, place)) if regains else value)
            place = builder.add(place, fine_step)
        *coarse, fine = by_byte
        products.append(builder.add(builder.shl(coarse[0], simd.ints(STEP_BITS, lanes)), fine) if coarse else fine)
    return products


def _fours(builder: Builder, stored: Value, num_bits: int) -> Iterator[tuple[int, Value]]:
    """(how far on the activations of four columns lie, the columns' weights as bytes)."""
    if num_bits == 8:
        yield 0, stored
    else:
        yield 0, builder.and_(stored, _all(stored, 15))
        yield 4 * FOURS // 2, builder.lshr(stored, _all(stored, 4))


def _pairs(builder: Builder, stored: Value, num_bits: int) -> Iterator[tuple[int, Value]]:
    """(how far on the activations of two columns lie, the columns' weights in 16 bits)."""
    for shift in range(0, 8, num_bits):
        for odd in range(2):
            weights = builder.lshr(stored, _all(stored, shift + 8 * odd)) if shift + odd else stored
            if shift + 8 * odd + num_bits < 16:
                weights = builder.and_(weights, _all(stored, (1 << num_bits) - 1))
            yield (8 * FOURS // 2 if shift else 0) + 4 * odd, weights


def _times_128(builder: Builder, quants: Value) -> Value:
    """128 Σ p over a group's bytes: what a weight q lacks as the signed byte q - 128."""
    ones = ir.Constant(bytes_of(4), [1] * 16)
    total = simd.ints(0, 4)
    for offset in range(0, GROUP, 16):
        total = dot_fours(builder, total, ones, simd.load(builder, simd.at(builder, quants, offset), bytes_of(4)))
    summed = simd.call(builder, "llvm.vector.reduce.add.v4i32", I32, total)
    return simd.splat(builder, builder.shl(summed, I32(7)), REGISTER_LANES)


def _all(like: Value, value: int) -> Value:
    return ir.Constant(like.type, [value] * like.type.count)
