"""What is done to one head of a projected row: queries and keys normed and rotated, keys and values stored."""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import literally, types
from numba.core import cgutils
from numba.extending import intrinsic

from . import simd
from .rows import inverse_root, narrow
from .simd import F32, FLOATS, I64, ITEM_SIZE, LANES, compiled


@intrinsic
def _turn(typing_context: Any, lanes, head, cos, sin, num_vectors, half):  # type: ignore[no-untyped-def]
    """Pairs (i, i + half) of one head turned by their angles, in place; `lanes` (1 or 16, literal) at a time."""
    if not simd.are_literal(lanes):
        return None
    kind = FLOATS if lanes.literal_value == LANES else F32
    step = 4 * lanes.literal_value

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        head, cos, sin, num_vectors, half = arguments[1:]
        opposite = builder.add(head, builder.mul(half, I64(4)))
        with cgutils.for_range(builder, num_vectors) as loop:
            offset = builder.mul(loop.index, I64(step))
            places = [simd.at(builder, start, offset) for start in (head, opposite)]
            first, second = (simd.load(builder, place, kind) for place in places)
            cosine, sine = (simd.load(builder, simd.at(builder, angles, offset), kind) for angles in (cos, sin))
            simd.store(builder, builder.fsub(builder.fmul(first, cosine), builder.fmul(second, sine)), places[0])
            simd.store(builder, builder.fadd(builder.fmul(second, cosine), builder.fmul(first, sine)), places[1])
        return context.get_dummy_value()

    return types.void(lanes, *([types.uint64] * 5)), generate


@compiled()
def turn(head, cos, sin, half):  # type: ignore[no-untyped-def]
    """Rotary embedding of one head [D] float32 in place, all by address; cos and sin [half] of its position."""
    if half % LANES == 0:
        _turn(16, head, cos, sin, np.uint64(half // LANES), np.uint64(half))
    else:
        _turn(1, head, cos, sin, np.uint64(half), np.uint64(half))


@intrinsic
def norm_head(typing_context: Any, head, weight, num_vectors, eps):  # type: ignore[no-untyped-def]
    """RMS norm of one head, in place."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        head, weight, num_vectors, eps = arguments
        squares = simd.variable(builder, simd.floats(0.0))
        with cgutils.for_range(builder, num_vectors) as loop:
            value = simd.load(builder, simd.at(builder, head, builder.mul(loop.index, I64(4 * LANES))), FLOATS)
            builder.store(simd.fma(builder, value, value, builder.load(squares)), squares)
        factor = inverse_root(builder, builder.load(squares), num_vectors, eps)
        with cgutils.for_range(builder, num_vectors) as loop:
            offset = builder.mul(loop.index, I64(4 * LANES))
            place = simd.at(builder, head, offset)
            value = builder.fmul(simd.load(builder, place, FLOATS), factor)
            scale = simd.load(builder, simd.at(builder, weight, offset), FLOATS)
            simd.store(builder, builder.fmul(value, scale), place)
        return context.get_dummy_value()

    return types.void(*([types.uint64] * 3), types.float32), generate


@intrinsic
def scale_vectors(typing_context: Any, values, num_vectors, factor):  # type: ignore[no-untyped-def]
    """float32 times a factor, in place."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        values, num_vectors, factor = arguments
        factors = simd.splat(builder, factor)
        with cgutils.for_range(builder, num_vectors) as loop:
            place = simd.at(builder, values, builder.mul(loop.index, I64(4 * LANES)))
            simd.store(builder, builder.fmul(simd.load(builder, place, FLOATS), factors), place)
        return context.get_dummy_value()

    return types.void(types.uint64, types.uint64, types.float32), generate


@compiled()
def rotate(head, cos, sin):  # type: ignore[no-untyped-def]
    """Rotary embedding of one head [D] float32, in place; cos and sin [R / 2] of its position."""
    turn(np.uint64(head.ctypes.data), np.uint64(cos.ctypes.data), np.uint64(sin.ctypes.data), cos.shape[0])


@intrinsic
def _scatter(typing_context: Any, kind, source, target, num_vectors, stride):  # type: ignore[no-untyped-def]
    """float32 to stored numbers that lie `stride` bytes apart."""
    if not simd.are_literal(kind):
        return None
    stored = kind.literal_value

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        source, target, num_vectors, stride = arguments[1:]
        staged = cgutils.alloca_once(builder, ir.ArrayType(simd.I8, ITEM_SIZE[stored] * LANES))
        staged_at = builder.ptrtoint(staged, I64)
        number = ir.IntType(8 * ITEM_SIZE[stored])
        with cgutils.for_range(builder, num_vectors) as loop:
            value = simd.load(builder, simd.at(builder, source, builder.mul(loop.index, I64(4 * LANES))), FLOATS)
            simd.store_floats(builder, value, staged_at, stored)
            first = simd.at(builder, target, builder.mul(stride, builder.mul(loop.index, I64(LANES))))
            for lane in range(LANES):
                one = simd.load(builder, simd.at(builder, staged_at, lane * ITEM_SIZE[stored]), number)
                simd.store(builder, one, simd.at(builder, first, builder.mul(stride, I64(lane))))
        return context.get_dummy_value()

    return types.void(kind, *([types.uint64] * 4)), generate


@compiled()
def finish_head(head_dim, head, norm, eps, cos, sin, half, scale):  # type: ignore[no-untyped-def]
    """A projected query or key [D] float32 normed, rotated and scaled in place, all by address.

    norm: address of the weight [D] float32, or 0 for none; cos, sin: of its position [half] float32; half: D / 2, or 0
    where nothing is rotated. Arrays would count references here, in memory that all threads share.
    """
    if norm:
        norm_head(head, norm, np.uint64(head_dim // LANES), np.float32(eps))
    if half:
        turn(head, cos, sin, half)
    if scale != np.float32(1.0):
        scale_vectors(head, np.uint64(head_dim // LANES), np.float32(scale))


@compiled()
def address_or_0(values):  # type: ignore[no-untyped-def]
    """Where an array lies; 0 for an empty one."""
    return np.uint64(values.ctypes.data) if values.shape[0] else np.uint64(0)


@compiled()
def store_key(kind, head_dim, key, head, keys, block_stride, slot):  # type: ignore[no-untyped-def]
    """A key at address `key`, [D] float32, into its slot; keys: address of the layer's [K, D, 16] in block 0."""
    literally(kind)
    item = np.uint64(4 if kind == 0 else 2)
    block = keys + np.uint64(slot // LANES) * block_stride + np.uint64(head * head_dim * LANES) * item
    _scatter(kind, key, block + np.uint64(slot % LANES) * item, np.uint64(head_dim // LANES), np.uint64(LANES) * item)


@compiled()
def store_value(kind, head_dim, value, head, values, block_stride, slot):  # type: ignore[no-untyped-def]
    """A value at address `value`, [D] float32, into its slot; values: address of the layer's [K, 16, D] in block 0."""
    literally(kind)
    item = np.uint64(4 if kind == 0 else 2)
    block = values + np.uint64(slot // LANES) * block_stride
    place = block + np.uint64((head * LANES + slot % LANES) * head_dim) * item
    narrow(kind, value, place, np.uint64(head_dim // LANES))


@compiled()
def finish_heads(  # type: ignore[no-untyped-def]
    kind, head_dim, row, num_heads, num_kv_heads, query_norm, key_norm, eps, cos, sin, half, scale, keys, values,
    block_stride, slot
):  # fmt: skip
    """A projected row [at least (H + 2 K) D] float32: queries and keys finished in place, keys and values stored.

    By address, as `finish_head` takes them.
    """
    literally(kind)
    head_bytes = np.uint64(4 * head_dim)
    for i in range(num_heads):
        finish_head(head_dim, row + np.uint64(i) * head_bytes, query_norm, eps, cos, sin, half, scale)
    for i in range(num_kv_heads):
        key, value = (
            row + np.uint64(num_heads + i) * head_bytes,
            row + np.uint64(num_heads + num_kv_heads + i) * head_bytes,
        )
        finish_head(head_dim, key, key_norm, eps, cos, sin, half, np.float32(1.0))
        store_key(kind, head_dim, key, i, keys, block_stride, slot)
        store_value(kind, head_dim, value, i, values, block_stride, slot)
