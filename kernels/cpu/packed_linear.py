"""Linear layers with 4- or 8-bit weights and activations of two bytes.

A weight is w = d · q + m with one d and m for each group of 32 columns, in tiles of 16 rows (grouped_weights.py). An
activation is x = s · p with one s for each group (rounding.py). A group's products are summed as integers, exactly:

    y[row] = Σ over groups  d s Σ q p  +  m s Σ p

p has two bytes: p = 256 · coarse + fine, the coarse one in [-127, 127]. The second byte costs time only where the
products do, and not where reading the weights does, which is when few rows are computed; there it makes the error of
rounding activations vanish beside that of the weights.

Groups are added in order, in float32, whatever the number of rows: a row's result doesn't depend on the batch it is in.
"""

import numpy as np
from numba import literally

from .byte_tiles import AT_ONCE, GROUPS_AT_ONCE, TILES_AT_ONCE, multiply_bytes
from .rounding import round_row
from .rows import gate_coarse_vectors, gate_vectors
from .simd import FLOAT32, LANES, compiled
from .tile_rows import COARSE_GROUP_BYTES, COLUMN_BYTES, GROUP, MOST_ROWS, tile_rows
from .work_sharing import items_ahead

MIN_BYTE_ROWS = 5
"""For fewer rows than eight a product of tiles takes as long as for eight."""
CLAIMS_PER_STAGE = 48  # enough that threads end together, few enough that claiming costs nothing


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
