"""Memory that a step computes in."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

ALIGNMENT = 64  # bytes: a cache line
LEAST_KEPT = 1 << 20
"""Bytes: less is quickly had anew, and never used twice at once."""


class StepMemory:
    """Arrays for one step after the other; what is in them at first is anything.

    Much memory is kept from step to step, in one piece: the system takes long to give new pages, and small ones make a
    processor look up each of them.
    """

    def __init__(self) -> None:
        self._kept = np.empty(0, np.uint8)

    def arrays(self, wanted: Sequence[tuple[tuple[int, ...], type]]) -> list[NDArray[np.generic]]:
        """wanted: shapes and types. The last call's arrays are given out again."""
        num_bytes = [int(np.prod(shape)) * np.dtype(kind).itemsize for shape, kind in wanted]
        if sum(num_bytes) < LEAST_KEPT:
            return [np.empty(shape, kind) for shape, kind in wanted]
        room = [-(-size // ALIGNMENT) * ALIGNMENT for size in num_bytes]
        if len(self._kept) < sum(room) + ALIGNMENT:
            self._kept = np.empty(sum(room) + ALIGNMENT, np.uint8)
        start = -self._kept.ctypes.data % ALIGNMENT
        arrays: list[NDArray[np.generic]] = []
        for (shape, kind), size, step in zip(wanted, num_bytes, room, strict=True):
            arrays.append(self._kept[start : start + size].view(kind).reshape(shape))
            start += step
        return arrays
