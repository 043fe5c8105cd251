"""Queries, keys and values by matrix tiles: projected, normed, rotated and put where attention looks for them.

A head's 16 or 32 rows stay in the core's nearest cache from the product to their places.
"""

from typing import Any

import numpy as np
from numba import literally, types
from numba.extending import intrinsic

from . import amx, simd
from .amx import ROW_BYTES, ROWS, TILE_BYTES
from .amx_layout import num_parts_of
from .amx_strip import FROM_BIAS, STRIP, STRIP_STRIDE, multiply_rows, unpack_strip
from .heads import address_or_0, finish_head, norm_head, store_key, store_value
from .rows import narrow
from .simd import FLOAT32, FLOATS, LANES, compiled
from .work_sharing import items_ahead


@compiled()
def scratch_rows(num_rows, num_blocks):  # type: ignore[no-untyped-def]
    """How many rows of a head `project_heads` keeps: those of a block."""
    num_row_groups = (num_rows + ROWS - 1) // ROWS
    return ROWS * ((num_row_groups + num_blocks - 1) // num_blocks)


@intrinsic
def _store_query(typing_context: Any, head_dim, terms, rotates, query, cos, sin, scale, target, part_step):  # type: ignore[no-untyped-def]
    """A query [D] float32 rotated by its angles where `rotates` is 1, scaled and stored as bfloat16 [D], all by
    address; the low parts go `part_step` bytes on."""
    if not simd.are_literal(head_dim, terms, rotates):
        return None
    num_vectors, num_parts = head_dim.literal_value // LANES, amx.parts(terms.literal_value)
    num_pairs = num_vectors // 2

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        query, cos, sin, scale, target, part_step = arguments[3:]

        def loaded(start: Any, index: int) -> Any:
            return simd.load(builder, simd.at(builder, start, 4 * LANES * index), FLOATS)

        row = [loaded(query, index) for index in range(num_vectors)]
        if rotates.literal_value:
            for i in range(num_pairs):
                first, second, cosine, sine = row[i], row[num_pairs + i], loaded(cos, i), loaded(sin, i)
                row[i] = builder.fsub(builder.fmul(first, cosine), builder.fmul(second, sine))
                row[num_pairs + i] = builder.fadd(builder.fmul(second, cosine), builder.fmul(first, sine))
        factors = simd.splat(builder, scale)
        row = [builder.fmul(vector, factors) for vector in row]
        for i in range(num_pairs):
            place = simd.at(builder, target, ROW_BYTES * i)
            amx.store_row(builder, row[2 * i], row[2 * i + 1], place, num_parts, part_step)
        return context.get_dummy_value()

    addresses = types.uint64, types.uint64, types.uint64
    return types.void(head_dim, terms, rotates, *addresses, types.float32, types.uint64, types.uint64), generate


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
    first_group,  # of 16 rows
    num_rows,  # up to there
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
    heads,  # scratch of this thread, float32 [scratch_rows, D], on a cache line
    decode_queries,  # float32 [num_decodes, H D]
    queries,  # address of bfloat16 [H, parts, query_rows, D]
    query_rows,
):
    literally(head_dim)
    literally(terms)
    literally(bits)
    literally(kind)
    num_groups, num_parts = packed.shape[1], num_parts_of(terms)
    num_row_groups = (num_rows + ROWS - 1) // ROWS - first_group
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

    packed_at, tile_bytes = np.uint64(packed.ctypes.data), np.uint64(packed.strides[0])
    num_strips = tiles_per_head // STRIP
    for item, following in items_ahead(counters, stage, num_blocks * num_all_heads, 1):
        block, head = item // num_all_heads, item % num_all_heads
        head_packed = packed_at + np.uint64(head * tiles_per_head) * tile_bytes
        ahead = packed_at + np.uint64(following % num_all_heads * tiles_per_head) * tile_bytes
        for strip in range(num_strips):
            offset = np.uint64(STRIP * strip) * tile_bytes
            unpack_strip(terms, bits, head_packed + offset, tile_bytes, np.uint64(num_groups), ahead + offset,
                         weights_at + np.uint64(strip) * strip_bytes)  # fmt: skip
        head_bias = bias_at + np.uint64(head) * bias_step
        norm_at = query_norm_at if head < num_heads else key_norm_at
        first = first_group + num_row_groups * block // num_blocks
        last = first_group + num_row_groups * (block + 1) // num_blocks
        for strip in range(num_strips):
            for row_group in range(first, last, 2):
                first_bias = head_bias + np.uint64(STRIP_STRIDE * strip)
                rows_at = heads_at + np.uint64(ROWS * (row_group - first)) * row_bytes
                multiply_rows(min(2, last - row_group), terms, FROM_BIAS,
                              activations + np.uint64(row_group) * group_step, group_step,
                              weights_at + np.uint64(strip) * strip_bytes, np.uint64(num_groups), first_bias,
                              first_bias + np.uint64(ROW_BYTES), rows_at + np.uint64(STRIP_STRIDE * strip),
                              row_bytes)  # fmt: skip
                if strip < num_strips - 1:
                    continue
                first_row, last_row = ROWS * row_group, min(ROWS * min(row_group + 2, last), num_rows)
                for row in range(first_row, last_row):
                    row_at = rows_at + np.uint64(row - first_row) * row_bytes
                    angles = np.uint64(positions[row]) * angle_bytes
                    if head >= num_heads + num_kv_heads:
                        store_value(kind, head_dim, row_at, head - num_heads - num_kv_heads, values, block_stride,
                                    slots[row])  # fmt: skip
                    elif head >= num_heads:
                        finish_head(head_dim, row_at, norm_at, eps, cos_at + angles, sin_at + angles, half,
                                    np.float32(1.0))  # fmt: skip
                        store_key(kind, head_dim, row_at, head - num_heads, keys, block_stride, slots[row])
                    elif row < num_decodes:
                        finish_head(head_dim, row_at, norm_at, eps, cos_at + angles, sin_at + angles, half,
                                    decode_scale)  # fmt: skip
                        narrow(FLOAT32, row_at, decode_at + np.uint64(row) * decode_step + np.uint64(head) * row_bytes,
                               np.uint64(tiles_per_head))  # fmt: skip
                    else:
                        place = queries + np.uint64(head * num_parts) * part_step + np.uint64(row) * query_bytes
                        if norm_at:
                            norm_head(row_at, norm_at, np.uint64(tiles_per_head), np.float32(eps))
                        if half:
                            _store_query(head_dim, terms, 1, row_at, cos_at + angles, sin_at + angles,
                                         np.float32(scale), place, part_step)  # fmt: skip
                        else:
                            _store_query(head_dim, terms, 0, row_at, row_at, row_at, np.float32(scale), place,
                                         part_step)  # fmt: skip
    return no_bias  # kept until here, for only its address was used
