"""What is done to one row of activations between the matrix products."""

from typing import Any

import numpy as np
from numba import literally, types
from numba.core import cgutils
from numba.extending import intrinsic

from . import simd
from .simd import F32, FLOAT32, FLOATS, HAS_SHORT_POWERS, I64, ITEM_SIZE, LANES, LOG2_E, compiled

NOTHING = -1  # in the place of a kind of stored numbers


def inverse_root(builder: Any, squares: Any, num_vectors: Any, eps: Any) -> Any:
    """1 / sqrt(mean + eps) of so many vectors whose squares are summed lane by lane, in all lanes."""
    width = builder.uitofp(builder.mul(num_vectors, I64(LANES)), F32)
    mean = builder.fdiv(simd.lanes_sum(builder, squares), width)
    root = simd.call(builder, "llvm.sqrt.f32", F32, builder.fadd(mean, eps))
    return simd.splat(builder, builder.fdiv(F32(1.0), root))


@intrinsic
def norm_vectors(typing_context: Any, in_kind, out_kind, total, added, weight, output, num_vectors, eps):  # type: ignore[no-untyped-def]
    """total += added; output = total / sqrt(mean(total²) + eps) · weight. With in_kind NOTHING, nothing is added."""
    if not simd.are_literal(in_kind, out_kind):
        return None
    added_kind, output_kind = in_kind.literal_value, out_kind.literal_value

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        total, added, weight, output, num_vectors, eps = arguments[2:]
        squares = simd.variable(builder, simd.floats(0.0))
        with cgutils.for_range(builder, num_vectors) as loop:
            place = simd.at(builder, total, builder.mul(loop.index, I64(4 * LANES)))
            value = simd.load(builder, place, FLOATS)
            if added_kind != NOTHING:
                source = simd.at(builder, added, builder.mul(loop.index, I64(ITEM_SIZE[added_kind] * LANES)))
                value = builder.fadd(value, simd.load_floats(builder, source, added_kind))
                simd.store(builder, value, place)
            builder.store(simd.fma(builder, value, value, builder.load(squares)), squares)
        factor = inverse_root(builder, builder.load(squares), num_vectors, eps)
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


def short_silu_mul(builder: Any, gate: Any, up: Any) -> Any:
    """gate · sigmoid(gate) · up, within 1e-6; a third of the time of `silu_mul`, in AVX-512's own terms."""
    size = simd.call(builder, "llvm.fabs.v16f32", FLOATS, gate)
    decay = simd.power_of_2(builder, builder.fmul(size, simd.floats(-LOG2_E)))
    share = simd.inverse(builder, builder.fadd(decay, simd.floats(1.0)))
    is_negative = builder.fcmp_ordered("<", gate, simd.floats(0.0))
    sigmoid = builder.select(is_negative, builder.fmul(decay, share), share)
    return builder.fmul(builder.fmul(gate, sigmoid), up)


@intrinsic
def gate_coarse_vectors(typing_context: Any, gate, up, output, num_vectors):  # type: ignore[no-untyped-def]
    """`gate_vectors` of float32 for rows that may be rounded differently: the shorter way where there is one."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        gate, up, output, num_vectors = arguments
        with cgutils.for_range(builder, num_vectors) as loop:
            offset = builder.mul(loop.index, I64(4 * LANES))
            factors = [simd.load(builder, simd.at(builder, place, offset), FLOATS) for place in (gate, up)]
            product = (short_silu_mul if HAS_SHORT_POWERS else silu_mul)(builder, *factors)
            simd.store(builder, product, simd.at(builder, output, offset))
        return context.get_dummy_value()

    return types.void(*([types.uint64] * 4)), generate


@intrinsic
def gate_vectors(typing_context: Any, kind, gate, up, output, num_vectors):  # type: ignore[no-untyped-def]
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
def widen(typing_context: Any, kind, source, target, num_vectors):  # type: ignore[no-untyped-def]
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
def narrow(typing_context: Any, kind, source, target, num_vectors):  # type: ignore[no-untyped-def]
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


@compiled()
def norm_row(in_kind, out_kind, total, added, weight, output, eps):  # type: ignore[no-untyped-def]
    """The residual sum `total` [width] float32 gets `added`; `output` [width] gets its RMS norm."""
    literally(in_kind)
    literally(out_kind)
    norm_vectors(in_kind, out_kind, np.uint64(total.ctypes.data), np.uint64(added.ctypes.data),
          np.uint64(weight.ctypes.data), np.uint64(output.ctypes.data), np.uint64(total.shape[0] // LANES),
          np.float32(eps))  # fmt: skip


@compiled()
def norm_only(total, weight, output, eps):  # type: ignore[no-untyped-def]
    """`output` [width] float32 gets the RMS norm of the residual sum `total` [width] float32."""
    total_at = np.uint64(total.ctypes.data)
    norm_vectors(NOTHING, FLOAT32, total_at, total_at, np.uint64(weight.ctypes.data), np.uint64(output.ctypes.data),
          np.uint64(total.shape[0] // LANES), np.float32(eps))  # fmt: skip


@compiled()
def silu_mul_row(kind, gate_up, output):  # type: ignore[no-untyped-def]
    """gate_up [2 width], gates first → output [width]."""
    literally(kind)
    width = output.shape[0]
    gate_vectors(kind, np.uint64(gate_up.ctypes.data), np.uint64(gate_up[width:].ctypes.data),
              np.uint64(output.ctypes.data), np.uint64(width // LANES))  # fmt: skip


@compiled()
def widen_row(kind, source, target):  # type: ignore[no-untyped-def]
    """A row of float32, or of half precision as uint16, as float32."""
    literally(kind)
    widen(kind, np.uint64(source.ctypes.data), np.uint64(target.ctypes.data), np.uint64(target.shape[0] // LANES))


@compiled()
def narrow_row(kind, source, target):  # type: ignore[no-untyped-def]
    """A row of float32 as float32, or as half precision in uint16."""
    literally(kind)
    narrow(kind, np.uint64(source.ctypes.data), np.uint64(target.ctypes.data), np.uint64(source.shape[0] // LANES))
