"""What tests of matrix tiles share: who runs them, rows as the first factor, the dense truth, how far off a row is."""

from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from paged_chat.kernels.cpu import amx
from paged_chat.kernels.cpu.amx import COLUMNS
from paged_chat.kernels.cpu.amx_layout import num_parts_of, store_row
from paged_chat.kernels.cpu.amx_strip import STRIP
from paged_chat.kernels.cpu.grouped_weights import GroupedWeights
from paged_chat.kernels.cpu.simd import compiled
from paged_chat.kernels.cpu.team import Team
from paged_chat.kernels.cpu.work_sharing import items

needs_tiles = pytest.mark.skipif(not amx.has_tiles(), reason="this processor, or this system, has no AMX tiles")
both_kinds = pytest.mark.parametrize(("bits", "terms"), [(4, 1), (8, 3)])

NUM_COLUMNS = 3 * COLUMNS
NO_BIAS = np.empty(0, np.float32)
TOLERANCES = {1: 7e-3, 3: 5e-5}
"""By terms, of a row's size: numbers have 8 binary digits, or 16."""


@compiled()
def store_rows(terms, counters, hidden, activations):  # type: ignore[no-untyped-def]
    """Rows as the first factor of products; the threads share them, as stage 0."""
    for row in items(counters, 0, hidden.shape[0], 1):
        store_row(terms, hidden[row], np.uint64(activations.ctypes.data), hidden.shape[1], row)


@compiled()
def strip_scratch(terms, packed, num_strips):  # type: ignore[no-untyped-def]
    """Memory for so many strips of unpacked weights."""
    return amx.aligned_floats(num_strips * packed.shape[1] * STRIP * num_parts_of(terms) * amx.TILE_BYTES // 4)


team = cache(Team)
"""`team(3)`: threads that never end are made once."""


def normal(generator: np.random.Generator, *shape: int) -> NDArray[np.float32]:
    return generator.standard_normal(shape, dtype=np.float32)


def dense_product(
    weights: GroupedWeights, hidden: NDArray[np.float32], bias: NDArray[np.float32] = NO_BIAS
) -> NDArray[np.float64]:  # [rows, outputs]
    """hidden · weightsᵀ + bias."""
    product = hidden.astype(np.float64) @ weights.dense().astype(np.float64).T
    return product + bias if len(bias) else product


def worst_error(values: Any, expected: Any) -> float:  # both [rows, ...], arrays or tensors
    """Of any row, as a share of its size."""
    errors, truth = (np.asarray(array).reshape(len(expected), -1) for array in (values - expected, expected))
    return float((np.linalg.norm(errors, axis=1) / np.linalg.norm(truth, axis=1)).max())
