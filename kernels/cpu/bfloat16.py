"""bfloat16 in vectors of AVX-512: rounded to, woven, and multiplied two by two."""

from typing import Any

from llvmlite import ir

from . import simd
from .simd import FEATURES, FLOATS, LANES

PAIRS = ir.VectorType(simd.I16, 2 * LANES)  # each lane of float32 has two


class _BFloat16(ir.Type):  # type: ignore[misc]
    """LLVM's bfloat, which llvmlite doesn't know."""

    def __str__(self) -> str:
        return "bfloat"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _BFloat16)

    def __hash__(self) -> int:
        return hash(_BFloat16)


def narrow(builder: Any, value: Any) -> Any:
    """16 float32 as bfloat16, rounded to the nearest."""
    kind = ir.VectorType(_BFloat16(), LANES)
    rounded = simd.call(builder, "llvm.x86.avx512bf16.cvtneps2bf16.512", kind, value)
    return builder.bitcast(rounded, simd.SHORTS)


def narrow_pair(builder: Any, first: Any, second: Any) -> Any:
    """Two vectors of 16 float32 as one of 32 bfloat16, the first in its lower half."""
    kind = ir.VectorType(_BFloat16(), 2 * LANES)
    rounded = simd.call(builder, "llvm.x86.avx512bf16.cvtne2ps2bf16.512", kind, second, first)
    return builder.bitcast(rounded, PAIRS)


def weave(builder: Any, even: Any, odd: Any, offset: int) -> Any:
    """16 bfloat16 of one vector and 16 of another, the latter from lane `offset` of the two together, taking turns."""
    turns = [lane // 2 + offset * (lane % 2) for lane in range(2 * LANES)]
    return builder.shuffle_vector(even, odd, ir.Constant(ir.VectorType(simd.I32, 2 * LANES), turns))


def has_dots() -> bool:
    """Whether the processor adds up the products of two pairs in one instruction (AVX-512 BF16)."""
    return bool(FEATURES.get("avx512bf16") and FEATURES.get("avx512bw"))


def dot(builder: Any, total: Any, first: Any, second: Any) -> Any:
    """total (16 float32) plus the products of 32 and 32 bfloat16, each two summed."""
    kind = ir.VectorType(_BFloat16(), 2 * LANES)
    factors = (builder.bitcast(pairs, kind) for pairs in (first, second))
    return simd.call(builder, "llvm.x86.avx512bf16.dpbf16ps.512", FLOATS, total, *factors)
