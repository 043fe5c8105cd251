"""Products of small integers, summed in int32, in the instructions that the processor has for them. Always exact.

Two kinds. Bytes, unsigned times signed, each four summed: AVX-512 VNNI and ARM's dot products. Numbers of 16 bits, each
two summed: every x86, in one instruction with AVX-VNNI. (AVX2's product of bytes saturates at 16 bits; and two bytes of
an activation cost it two products with two additions each, where one product of 16 bits does.)
"""

from llvmlite import ir

from .simd import FEATURES, I8, I16, I32, Builder, Value, call

MULTIPLIES_BYTES = bool(FEATURES.get("avx512vnni") or FEATURES.get("avxvnni") or FEATURES.get("dotprod"))
"""Whether the processor multiplies bytes by fours; otherwise two-byte activations are multiplied as 16 bits."""

WEIGHTS_ARE_SIGNED = bool(FEATURES.get("dotprod") and not FEATURES.get("i8mm"))
"""Whether `dot_fours` takes its first factor as signed: ARM multiplies mixed signs only with i8mm."""


def dot_fours(builder: Builder, total: Value, weights: Value, activations: Value) -> Value:
    """total (n int32) plus the products of 4n bytes of weights and 4n signed bytes, each four summed."""
    lanes = total.type.count
    if lanes == 16 and FEATURES.get("avx512vnni"):
        return call(builder, "llvm.x86.avx512.vpdpbusd.512", total.type, total, weights, activations)
    if lanes == 8 and FEATURES.get("avxvnni"):
        return call(builder, "llvm.x86.avx512.vpdpbusd.256", total.type, total, weights, activations)
    if lanes == 4 and FEATURES.get("dotprod"):
        name = "sdot" if WEIGHTS_ARE_SIGNED else "usdot"
        return call(builder, f"llvm.aarch64.neon.{name}.v4i32.v16i8", total.type, total, weights, activations)
    for place in range(4):
        first = builder.zext(_every(builder, weights, place, 4), total.type)
        second = builder.sext(_every(builder, activations, place, 4), total.type)
        total = builder.add(total, builder.mul(first, second))
    return total


def dot_pairs(builder: Builder, total: Value, first: Value, second: Value) -> Value:
    """total (n int32) plus the products of 2n and 2n numbers of 16 bits, signed, each two summed."""
    lanes = total.type.count
    if lanes == 8 and FEATURES.get("avxvnni"):
        return call(builder, "llvm.x86.avx512.vpdpwssd.256", total.type, total, first, second)
    names = {4: "sse2.pmadd.wd", 8: "avx2.pmadd.wd", 16: "avx512.pmaddw.d.512"}
    features = {4: "sse2", 8: "avx2", 16: "avx512bw"}
    if FEATURES.get(features[lanes]):
        return builder.add(total, call(builder, f"llvm.x86.{names[lanes]}", total.type, first, second))
    for place in range(2):
        factors = (builder.sext(_every(builder, vector, place, 2), total.type) for vector in (first, second))
        total = builder.add(total, builder.mul(*factors))
    return total


def _every(builder: Builder, vector: Value, start: int, step: int) -> Value:
    """Every so many of a vector's numbers."""
    places = list(range(start, vector.type.count, step))
    chosen = ir.Constant(ir.VectorType(I32, len(places)), places)
    return builder.shuffle_vector(vector, ir.Constant(vector.type, ir.Undefined), chosen)


def bytes_of(lanes: int) -> ir.Type:
    """A vector of four bytes for each lane."""
    return ir.VectorType(I8, 4 * lanes)


def shorts_of(lanes: int) -> ir.Type:
    """A vector of two numbers of 16 bits for each lane."""
    return ir.VectorType(I16, 2 * lanes)
