"""Queries, keys and values by matrix tiles: projected, normed, rotated and put where attention looks for them.

A head's 16 or 32 rows stay in the core's nearest cache from the product to their places.
"""

import numpy as np
from numba import literally

from .amx import ROW_BYTES, ROWS, TILE_BYTES
from .amx_layout import num_parts_of, store_values
from .amx_linear import FROM_BIAS, STRIP, STRIP_STRIDE, multiply_strip, unpack_strip
from .rows import address_or_0, finish_head, narrow, store_key, store_value
from .simd import FLOAT32, LANES, compiled
from .work_sharing import items

SCRATCH_ROWS = 2 * ROWS


@compiled()
def project_heads(  # type: ignore[no-untyped-def]
    head_dim,  # literal, as are the next three
    terms,
    bits,
    kind,  # of the cache
    counters,
    stage,
    num_blocks,  # of rows, count_blocks
    packed,  # uint8 [tiles, groups, group_bytes]: H heads' queries, K heads' keys, K heads' values
    bias,  # float32 [out] or [0]
    activations,  # address of the tiles
    num_heads,
    num_kv_heads,
    query_norm,  # [D] float32, or empty
    key_norm,
    eps,
    has_rope,
    cos,  # [positions, D / 2] float32
    sin,
    positions,  # [M] int64
    slots,  # [M] int64
    num_decodes,  # rows at the front whose queries are wanted in float32
    decode_scale,
    scale,
    keys,  # address of the layer's keys in block 0
    values,
    block_stride,  # bytes
    strip_weights,  # scratch of this thread, uint8 [at least D / 32 · groups · STRIP · parts · 1024], on a cache line
    heads,  # scratch of this thread, float32 [SCRATCH_ROWS, D], on a cache line
    decode_queries,  # float32 [num_decodes, H D]
    queries,  # address of bfloat16 [H, parts, query_rows, D]
    query_rows,
):
    literally(head_dim)
    literally(terms)
    literally(bits)
    literally(kind)
    num_rows, num_groups, num_parts = positions.shape[0], packed.shape[1], num_parts_of(terms)
    num_row_groups = (num_rows + ROWS - 1) // ROWS
    group_step = np.uint64(num_groups * num_parts * TILE_BYTES)
    strip_bytes = np.uint64(num_groups * STRIP * num_parts * TILE_BYTES)
    tiles_per_head = head_dim // LANES
    num_all_heads = num_heads + 2 * num_kv_heads
    weights_at, heads_at = np.uint64(strip_weights.ctypes.data), np.uint64(heads.ctypes.data)
    row_bytes, query_bytes = np.uint64(4 * head_dim), np.uint64(2 * head_dim)
    part_step = np.uint64(query_rows) * query_bytes
    query_norm_at, key_norm_at = address_or_0(query_norm), address_or_0(key_norm)
    cos_at, sin_at, angle_bytes = np.uint64(cos.ctypes.data), np.uint64(sin.ctypes.data), np.uint64(cos.strides[0])
    half = cos.shape[1] if has_rope else 0
    decode_at, decode_step = np.uint64(decode_queries.ctypes.data), np.uint64(decode_queries.strides[0])
    no_bias = np.zeros(head_dim, np.float32)
    bias_at, bias_step = np.uint64(no_bias.ctypes.data), np.uint64(0)
    if bias.shape[0]:
        bias_at, bias_step = np.uint64(bias.ctypes.data), row_bytes

    for item in items(counters, stage, num_blocks * num_all_heads, 1):
        block, head = item // num_all_heads, item % num_all_heads
        for strip in range(tiles_per_head // STRIP):
            tile = head * tiles_per_head + STRIP * strip
            unpack_strip(terms, bits, packed, tile, tile + 1, weights_at + np.uint64(strip) * strip_bytes)
        head_bias = bias_at + np.uint64(head) * bias_step
        norm_at = query_norm_at if head < num_heads else key_norm_at
        row_group, last = num_row_groups * block // num_blocks, num_row_groups * (block + 1) // num_blocks
        while row_group < last:
            here = activations + np.uint64(row_group) * group_step
            for strip in range(tiles_per_head // STRIP):
                strip_at = weights_at + np.uint64(strip) * strip_bytes
                target = heads_at + np.uint64(STRIP_STRIDE * strip)
                first_bias = head_bias + np.uint64(STRIP_STRIDE * strip)
                if row_group + 1 < last:
                    multiply_strip(2, terms, FROM_BIAS, here, group_step, strip_at, np.uint64(num_groups), first_bias,
                                   first_bias + np.uint64(ROW_BYTES), target, row_bytes)  # fmt: skip
                else:
                    multiply_strip(1, terms, FROM_BIAS, here, group_step, strip_at, np.uint64(num_groups), first_bias,
                                   first_bias + np.uint64(ROW_BYTES), target, row_bytes)  # fmt: skip
            first_row, last_row = ROWS * row_group, min(ROWS * min(row_group + 2, last), num_rows)
            for row in range(first_row, last_row):
                row_at = heads_at + np.uint64(row - first_row) * row_bytes
                factor = np.float32(1.0)
                if head < num_heads:
                    factor = decode_scale if row < num_decodes else scale
                if head < num_heads + num_kv_heads:
                    angles = np.uint64(positions[row]) * angle_bytes
                    finish_head(head_dim, row_at, norm_at, eps, cos_at + angles, sin_at + angles, half, factor)
                if head >= num_heads + num_kv_heads:
                    store_value(kind, head_dim, row_at, head - num_heads - num_kv_heads, values, block_stride,
                                slots[row])  # fmt: skip
                elif head >= num_heads:
                    store_key(kind, head_dim, row_at, head - num_heads, keys, block_stride, slots[row])
                elif row < num_decodes:
                    narrow(FLOAT32, row_at, decode_at + np.uint64(row) * decode_step + np.uint64(head) * row_bytes,
                             np.uint64(tiles_per_head))  # fmt: skip
                else:
                    place = queries + np.uint64(head * num_parts) * part_step + np.uint64(row) * query_bytes
                    store_values(terms, row_at, np.uint64(head_dim // LANES // 2), place, np.uint64(ROW_BYTES),
                                 part_step)  # fmt: skip
            row_group += 2
    return no_bias  # kept until here, for only its address was used
