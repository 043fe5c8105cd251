"""What a packed step does to each row by itself: normed and rounded, rounded, or its heads finished.

The threads share the rows. All is done by address: a slice of an array counts a reference, in memory that all threads
share, which takes longer than what is done to a row.
"""

import numpy as np
from numba import literally

from .heads import address_or_0, finish_heads
from .rounding import round_row
from .rows import norm_vectors
from .simd import FLOAT32, LANES, compiled
from .tile_rows import GROUP
from .work_sharing import items

CLAIMS_PER_STAGE = 128
"""Of many rows, several are claimed at once."""


@compiled()
def _per_claim(num_rows):  # type: ignore[no-untyped-def]
    return max(1, num_rows // CLAIMS_PER_STAGE)


@compiled()
def norm_and_round_rows(  # type: ignore[no-untyped-def]
    middle,  # literal: of the next layer's weights where rows may be coarse, else 0
    counters,
    stage,
    total,  # [M, W] float32, the residual sum: gets `added`
    added,  # [M, at least W] float32
    weight,  # [W] float32
    eps,
    activation,  # scratch of this thread, float32 [W]
    are_coarse,  # [M] bool
    quants,  # what the next layer takes: int8 [M, ACTIVATION_BYTES, at least W]
    scales,  # float32 [M, at least W / GROUP]
    sums,
):
    """RMS norm of the residual sum, rounded for the next layer."""
    literally(middle)
    num_rows, width = total.shape
    total_at, added_at, weight_at = (
        np.uint64(total.ctypes.data),
        np.uint64(added.ctypes.data),
        np.uint64(weight.ctypes.data),
    )
    total_step, added_step = np.uint64(total.strides[0]), np.uint64(added.strides[0])
    activation_at, num_vectors = np.uint64(activation.ctypes.data), np.uint64(width // LANES)
    quants_at, quants_step, fine_step = np.uint64(quants.ctypes.data), np.uint64(quants.strides[0]), quants.strides[1]
    scales_at, sums_at = np.uint64(scales.ctypes.data), np.uint64(sums.ctypes.data)
    scales_step = np.uint64(scales.strides[0])
    for item in items(counters, stage, num_rows, _per_claim(num_rows)):
        row = np.uint64(item)
        norm_vectors(FLOAT32, FLOAT32, total_at + row * total_step, added_at + row * added_step, weight_at,
                     activation_at, num_vectors, np.float32(eps))  # fmt: skip
        round_row(middle, are_coarse[item], activation_at, np.uint64(width // GROUP),
                  quants_at + row * quants_step, np.uint64(fine_step), scales_at + row * scales_step,
                  sums_at + row * scales_step)  # fmt: skip


@compiled()
def round_rows(middle, counters, stage, values, are_coarse, quants, scales, sums):  # type: ignore[no-untyped-def]
    """values [M, W] float32, rounded for the next layer; the rest as for `norm_and_round_rows`."""
    literally(middle)
    num_rows, width = values.shape
    values_at, values_step = np.uint64(values.ctypes.data), np.uint64(values.strides[0])
    quants_at, quants_step, fine_step = np.uint64(quants.ctypes.data), np.uint64(quants.strides[0]), quants.strides[1]
    scales_at, sums_at = np.uint64(scales.ctypes.data), np.uint64(sums.ctypes.data)
    scales_step = np.uint64(scales.strides[0])
    for item in items(counters, stage, num_rows, _per_claim(num_rows)):
        row = np.uint64(item)
        round_row(middle, are_coarse[item], values_at + row * values_step, np.uint64(width // GROUP),
                  quants_at + row * quants_step, np.uint64(fine_step), scales_at + row * scales_step,
                  sums_at + row * scales_step)  # fmt: skip


@compiled()
def finish_rows(  # type: ignore[no-untyped-def]
    kind,  # of the cache, literal
    head_dim,  # literal
    counters,
    stage,
    projected,  # [M, at least (H + 2 K) D] float32
    num_heads,
    num_kv_heads,
    query_norm,  # [D] float32, or [0]
    key_norm,
    eps,
    has_rope,
    cos,  # [positions, D / 2] float32
    sin,
    positions,  # [M] int64
    scale,
    keys,  # address of the layer's keys in block 0
    values,
    block_stride,
    slots,  # [M] int64
):
    """Queries and keys finished in place, keys and values stored."""
    literally(kind)
    literally(head_dim)
    num_rows = slots.shape[0]
    rows_at, rows_step = np.uint64(projected.ctypes.data), np.uint64(projected.strides[0])
    query_norm_at, key_norm_at = address_or_0(query_norm), address_or_0(key_norm)
    cos_at, sin_at, angles_step = np.uint64(cos.ctypes.data), np.uint64(sin.ctypes.data), np.uint64(cos.strides[0])
    half = cos.shape[1] if has_rope else 0
    for item in items(counters, stage, num_rows, _per_claim(num_rows)):
        offset = np.uint64(positions[item]) * angles_step
        finish_heads(kind, head_dim, rows_at + np.uint64(item) * rows_step, num_heads, num_kv_heads, query_norm_at,
                     key_norm_at, eps, cos_at + offset, sin_at + offset, half, scale, keys, values, block_stride,
                     slots[item])  # fmt: skip
