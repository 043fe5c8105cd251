"""What is done to one row of activations between the matrix products."""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import literally, types
from numba.core import cgutils
from numba.extending import intrinsic

from . import simd
from .simd import F32, FLOATS, I64, ITEM_SIZE, LANES, compiled


@intrinsic
def _norm(typing_context: Any, in_kind, out_kind, total, added, weight, output, num_vectors, eps):  # type: ignore[no-untyped-def]
    """total += added; output = total / sqrt(mean(total²) + eps) · weight."""
    if not simd.are_literal(in_kind, out_kind):
        return None
    added_kind, output_kind = in_kind.literal_value, out_kind.literal_value

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        total, added, weight, output, num_vectors, eps = arguments[2:]
        squares = simd.variable(builder, simd.floats(0.0))
        with cgutils.for_range(builder, num_vectors) as loop:
            place = simd.at(builder, total, builder.mul(loop.index, I64(4 * LANES)))
            source = simd.at(builder, added, builder.mul(loop.index, I64(ITEM_SIZE[added_kind] * LANES)))
            value = builder.fadd(simd.load(builder, place, FLOATS), simd.load_floats(builder, source, added_kind))
            simd.store(builder, value, place)
            builder.store(simd.fma(builder, value, value, builder.load(squares)), squares)
        width = builder.uitofp(builder.mul(num_vectors, I64(LANES)), F32)
        mean = builder.fdiv(simd.lanes_sum(builder, builder.load(squares)), width)
        root = simd.call(builder, "llvm.sqrt.f32", F32, builder.fadd(mean, eps))
        factor = simd.splat(builder, builder.fdiv(F32(1.0), root))
        with cgutils.for_range(builder, num_vectors) as loop:
            offset = builder.mul(loop.index, I64(4 * LANES))
            value = builder.fmul(simd.load(builder, simd.at(builder, total, offset), FLOATS), factor)
            value = builder.fmul(value, simd.load(builder, simd.at(builder, weight, offset), FLOATS))
            target = simd.at(builder, output, builder.mul(loop.index, I64(ITEM_SIZE[output_kind] * LANES)))
            simd.store_floats(builder, value, target, output_kind)
        return context.get_dummy_value()

    return types.void(in_kind, out_kind, *([types.uint64] * 5), types.float32), generate


def silu_mul(builder: Any, gate: Any, up: Any) -> Any:
    """gate · sigmoid(gate) · up, of 16 float32."""
    decay = simd.exp(builder, builder.fneg(simd.call(builder, "llvm.fabs.v16f32", FLOATS, gate)))
    share = builder.fdiv(simd.floats(1.0), builder.fadd(simd.floats(1.0), decay))
    is_negative = builder.fcmp_ordered("<", gate, simd.floats(0.0))
    sigmoid = builder.select(is_negative, builder.fmul(decay, share), share)
    return builder.fmul(builder.fmul(gate, sigmoid), up)


@intrinsic
def _silu_mul(typing_context: Any, kind, gate, up, output, num_vectors):  # type: ignore[no-untyped-def]
    """output = gate · sigmoid(gate) · up, all of one kind."""
    if not simd.are_literal(kind):
        return None
    stored = kind.literal_value

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        gate, up, output, num_vectors = arguments[1:]
        with cgutils.for_range(builder, num_vectors) as loop:
            offset = builder.mul(loop.index, I64(ITEM_SIZE[stored] * LANES))
            value = simd.load_floats(builder, simd.at(builder, gate, offset), stored)
            other = simd.load_floats(builder, simd.at(builder, up, offset), stored)
            product = silu_mul(builder, value, other)
            simd.store_floats(builder, product, simd.at(builder, output, offset), stored)
        return context.get_dummy_value()

    return types.void(kind, *([types.uint64] * 4)), generate


@intrinsic
def _widen(typing_context: Any, kind, source, target, num_vectors):  # type: ignore[no-untyped-def]
    """Stored numbers as float32."""
    if not simd.are_literal(kind):
        return None
    stored = kind.literal_value

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        source, target, num_vectors = arguments[1:]
        with cgutils.for_range(builder, num_vectors) as loop:
            place = simd.at(builder, source, builder.mul(loop.index, I64(ITEM_SIZE[stored] * LANES)))
            value = simd.load_floats(builder, place, stored)
            simd.store(builder, value, simd.at(builder, target, builder.mul(loop.index, I64(4 * LANES))))
        return context.get_dummy_value()

    return types.void(kind, *([types.uint64] * 3)), generate


@intrinsic
def _narrow(typing_context: Any, kind, source, target, num_vectors):  # type: ignore[no-untyped-def]
    """float32 to stored numbers."""
    if not simd.are_literal(kind):
        return None
    stored = kind.literal_value

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        source, target, num_vectors = arguments[1:]
        with cgutils.for_range(builder, num_vectors) as loop:
            value = simd.load(builder, simd.at(builder, source, builder.mul(loop.index, I64(4 * LANES))), FLOATS)
            place = simd.at(builder, target, builder.mul(loop.index, I64(ITEM_SIZE[stored] * LANES)))
            simd.store_floats(builder, value, place, stored)
        return context.get_dummy_value()

    return types.void(kind, *([types.uint64] * 3)), generate


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
def norm_row(in_kind, out_kind, total, added, weight, output, eps):  # type: ignore[no-untyped-def]
    """The residual sum `total` [width] float32 gets `added`; `output` [width] gets its RMS norm."""
    literally(in_kind)
    literally(out_kind)
    _norm(in_kind, out_kind, np.uint64(total.ctypes.data), np.uint64(added.ctypes.data),
          np.uint64(weight.ctypes.data), np.uint64(output.ctypes.data), np.uint64(total.shape[0] // LANES),
          np.float32(eps))  # fmt: skip


@compiled()
def silu_mul_row(kind, gate_up, output):  # type: ignore[no-untyped-def]
    """gate_up [2 width], gates first → output [width]."""
    literally(kind)
    width = output.shape[0]
    _silu_mul(kind, np.uint64(gate_up.ctypes.data), np.uint64(gate_up[width:].ctypes.data),
              np.uint64(output.ctypes.data), np.uint64(width // LANES))  # fmt: skip


@compiled()
def head_norm(head, weight, eps):  # type: ignore[no-untyped-def]
    """RMS norm of one head [D] float32, in place."""
    squares = np.float32(0.0)
    for i in range(head.shape[0]):
        squares += head[i] * head[i]
    factor = np.float32(1.0) / np.sqrt(squares / np.float32(head.shape[0]) + np.float32(eps))
    for i in range(head.shape[0]):
        head[i] = head[i] * factor * weight[i]


@intrinsic
def _rotate(typing_context: Any, head, cos, sin, num_vectors):  # type: ignore[no-untyped-def]
    """Pairs (i, i + R / 2) of one head turned by their angles, 16 at a time, in place."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        head, cos, sin, num_vectors = arguments
        half = builder.mul(num_vectors, I64(4 * LANES))
        with cgutils.for_range(builder, num_vectors) as loop:
            offset = builder.mul(loop.index, I64(4 * LANES))
            places = [simd.at(builder, head, offset), simd.at(builder, builder.add(head, half), offset)]
            first, second = (simd.load(builder, place, FLOATS) for place in places)
            cosine = simd.load(builder, simd.at(builder, cos, offset), FLOATS)
            sine = simd.load(builder, simd.at(builder, sin, offset), FLOATS)
            turned = builder.fsub(builder.fmul(first, cosine), builder.fmul(second, sine))
            simd.store(builder, turned, places[0])
            turned = builder.fadd(builder.fmul(second, cosine), builder.fmul(first, sine))
            simd.store(builder, turned, places[1])
        return context.get_dummy_value()

    return types.void(*([types.uint64] * 4)), generate


@intrinsic
def _scale(typing_context: Any, values, num_vectors, factor):  # type: ignore[no-untyped-def]
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
    half = cos.shape[0]
    if half % LANES == 0:
        _rotate(np.uint64(head.ctypes.data), np.uint64(cos.ctypes.data), np.uint64(sin.ctypes.data),
                np.uint64(half // LANES))  # fmt: skip
        return
    for i in range(half):
        first, second = head[i], head[i + half]
        head[i] = first * cos[i] - second * sin[i]
        head[i + half] = second * cos[i] + first * sin[i]


@compiled()
def widen_row(kind, source, target):  # type: ignore[no-untyped-def]
    """A row of float32, or of half precision as uint16, as float32."""
    literally(kind)
    _widen(kind, np.uint64(source.ctypes.data), np.uint64(target.ctypes.data), np.uint64(target.shape[0] // LANES))


@compiled()
def narrow_row(kind, source, target):  # type: ignore[no-untyped-def]
    """A row of float32 as float32, or as half precision in uint16."""
    literally(kind)
    _narrow(kind, np.uint64(source.ctypes.data), np.uint64(target.ctypes.data), np.uint64(source.shape[0] // LANES))


@compiled()
def prepare_heads(  # type: ignore[no-untyped-def]
    kind, head_dim, row, num_heads, num_kv_heads, query_norm, key_norm, eps, has_rope, cos, sin, scale, keys, values,
    block_stride, slot
):  # fmt: skip
    """What a projected row [at least (H + 2 K) D] float32 goes through before attention, in place.

    Queries and keys are normed (where query_norm and key_norm [D] aren't empty) and rotated, queries scaled, keys and
    values stored in the token's slot. keys, values: addresses of the layer's keys [K, D, 16] and values [K, 16, D] in
    block 0.
    """
    literally(kind)
    num_turned = num_heads + num_kv_heads
    if query_norm.shape[0]:
        for i in range(num_turned):
            norm = query_norm if i < num_heads else key_norm
            head_norm(row[i * head_dim : (i + 1) * head_dim], norm, eps)
    # Addresses are worked out here: every slice of an array would count a reference, in memory that all threads share.
    row_at, head_bytes = np.uint64(row.ctypes.data), np.uint64(4 * head_dim)
    if has_rope and cos.shape[0] % LANES == 0:
        cos_at, sin_at, num_angles = np.uint64(cos.ctypes.data), np.uint64(sin.ctypes.data), cos.shape[0] // LANES
        for i in range(num_turned):
            _rotate(row_at + np.uint64(i) * head_bytes, cos_at, sin_at, np.uint64(num_angles))
    elif has_rope:
        for i in range(num_turned):
            rotate(row[i * head_dim : (i + 1) * head_dim], cos, sin)
    _scale(row_at, np.uint64(num_heads * head_dim // LANES), np.float32(scale))

    item = np.uint64(4 if kind == 0 else 2)
    width, num_vectors = np.uint64(head_dim), np.uint64(head_dim // LANES)
    block, offset = np.uint64(slot // LANES) * block_stride, np.uint64(slot % LANES)
    for i in range(num_kv_heads):
        start = block + np.uint64(i) * width * np.uint64(LANES) * item
        _scatter(kind, row_at + np.uint64(num_heads + i) * head_bytes, keys + start + offset * item, num_vectors,
                 np.uint64(LANES) * item)  # fmt: skip
        _narrow(kind, row_at + np.uint64(num_turned + i) * head_bytes, values + start + offset * width * item,
                num_vectors)  # fmt: skip
