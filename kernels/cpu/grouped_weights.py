"""A matrix of weights in 4 or 8 bits: how it is rounded, and the order in which the kernels read it.

A weight is w = d · q + m, with q unsigned and one d and m for each row and group of 32 columns (GGUF's Q4_1; Q4_0 and
Q8_0 are special cases of it, so such files are taken over without rounding again).

16 rows of weights lie together as the lanes of a vector, so one load serves 16 outputs and nothing is summed across
lanes. A tile is [groups, bytes]: 8 fours of columns times 16 rows times 4 columns, then d and m of the 16 rows in
float16. With 4 bits, four i has the low halves of the bytes of which four i + 4 has the high ones.
"""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from .simd import LANES
from .tile_rows import FOURS, GROUP, SCALE_BYTES

LARGEST = float(np.finfo(np.float16).max)
ROWS_AT_ONCE = 4096  # that are rounded together: what rounding needs in between stays small


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
