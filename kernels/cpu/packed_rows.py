"""One layer of packed weights on its own, as the packed step computes it inside; for checks and comparisons."""

from collections.abc import Callable
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .packed_linear import linear
from .rounding import quantise_row
from .simd import LANES, SOURCE_STAMP, compiled
from .team import shared_team
from .tile_rows import ACTIVATION_BYTES, GROUP
from .work_sharing import items, new_counters


@cache
def _compile_rows(bits: int) -> Callable[..., None]:
    stamp = SOURCE_STAMP

    @compiled(cache=True)
    def rows(counters, spans, hidden, packed, bias, quants, scales, sums, output):  # type: ignore[no-untyped-def]
        _ = stamp
        for row in items(counters, 0, hidden.shape[0], 1):
            quantise_row(hidden[row], quants[row], scales[row], sums[row])
        linear(bits, 0, 0, counters, 1, spans, packed, bias, quants, scales, sums, output, np.uint64(0))

    return rows


def packed_linear_rows(
    hidden: Tensor,  # [T, in] float32
    packed: NDArray[np.uint8],  # [tiles, groups, bytes], from `grouped_weights.pack`
    bits: int,
) -> Tensor:  # [T, 16 tiles] float32
    """hidden · weightᵀ; the columns behind the weight's own rows are 0."""
    num_rows, num_columns = hidden.shape
    scales = np.empty((num_rows, num_columns // GROUP), np.float32)
    output = np.empty((num_rows, LANES * len(packed)), np.float32)
    shared_team().run(
        _compile_rows(bits),
        new_counters(2),
        np.array([[0, 0, num_rows]]),
        hidden.contiguous().numpy(),
        packed,
        np.empty(0, np.float32),
        np.empty((num_rows, ACTIVATION_BYTES, num_columns), np.int8),
        scales,
        np.empty_like(scales),
        output,
    )
    return torch.from_numpy(output)
