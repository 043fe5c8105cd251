"""Vector instructions for Numba functions, said in LLVM's terms.

Numba turns loops over arrays into vector code only where it can prove that to be safe, and keeps accumulators in
memory. The few inner loops that decide the speed are therefore built from these pieces with LLVM's own builder, inside
Numba intrinsics. LLVM maps the 16-lane vectors to what the processor has: one AVX-512 register, two of AVX2, four of
NEON. Where many sums are kept in registers at once, a kernel takes `REGISTER_LANES` of the 16 lanes at a time, so that
the registers suffice. Sums are always taken in the same order, whatever the processor, so a result doesn't depend on
what is computed beside it, nor on where.
"""

import math
import platform
import sys
import zlib
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from llvmlite import ir
from numba import config, njit, types
from numba.core import cgutils
from numba.core.codegen import get_host_cpu_features
from numba.extending import intrinsic

compiled = partial(njit, nogil=True, error_model="numpy")
"""Numba's decorator as all our kernels want it: the interpreter lock is free, and a division by 0 gives inf or NaN."""

SOURCE_STAMP = zlib.crc32(b"".join(path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py"))))
"""Numba keeps compiled code until the file of its outermost function changes, and doesn't look at what that calls. A
function that is kept refers to this number, which makes it a part of the key: any change here compiles it anew."""

LANES = 16
LOG2_E = math.log2(math.e)  # e^x = 2^(x · log2 e)
CACHE_LINE = 64
I8, I16, I32, I64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))
F32, F16 = ir.FloatType(), ir.HalfType()
TRUTHS = ir.VectorType(ir.IntType(1), LANES)
INTS = ir.VectorType(I32, LANES)
SHORTS = ir.VectorType(I16, LANES)
FLOATS = ir.VectorType(F32, LANES)
HALVES = ir.VectorType(F16, LANES)


def _target_features() -> dict[str, bool]:
    """Of the processor that Numba compiles for: its variables NUMBA_CPU_NAME and NUMBA_CPU_FEATURES may say another."""
    features = get_host_cpu_features() if config.CPU_FEATURES is None else config.CPU_FEATURES
    if not features and sys.platform == "darwin" and platform.machine() == "arm64":
        features = "+neon,+dotprod"  # LLVM doesn't look there; every Apple processor of this kind has them
    return {feature[1:]: feature.startswith("+") for feature in features.split(",") if feature}


def _registers(features: dict[str, bool]) -> tuple[int, int]:
    """(float32 lanes of a vector register, how many such registers there are)."""
    if features.get("avx512f"):
        return 16, 32
    if features.get("avx"):
        return 8, 16
    return 4, 16 if features.get("sse2") else 32  # NEON, and most of what is newer than SSE


FEATURES = _target_features()
REGISTER_LANES, NUM_REGISTERS = _registers(FEATURES)

FLOAT32, BFLOAT16, FLOAT16 = 0, 1, 2
"""Kinds of stored numbers, as literal arguments of intrinsics; everything is computed in float32."""

POWER_SERIES = (1.0, 0.69315131181, 0.2401644501, 0.055799913321, 0.0090170300187, 0.0018671302133)
SHORT_POWER_SERIES = (1.0, 0.69511678867, 0.22764498119, 0.077067051183)
"""Coefficients of 2^x for x from 0 to 1, exact at 0, where a largest score is: the error's largest value is the least,
8e-8 of 2^x and 9e-5."""

HAS_SHORT_POWERS = bool(FEATURES.get("avx512f") and FEATURES.get("avx512dq"))
"""Whether the processor has what `power_of_2` and `inverse` take."""

ITEM_SIZE = {FLOAT32: 4, BFLOAT16: 2, FLOAT16: 2}
_CONVERTS_HALVES = bool(FEATURES.get("f16c") or FEATURES.get("avx512f") or FEATURES.get("neon"))
"""Elsewhere LLVM calls functions of the compiler's own library, which Numba doesn't find."""
_STORED = {FLOAT32: F32, BFLOAT16: I16, FLOAT16: F16 if _CONVERTS_HALVES else I16}

Builder: TypeAlias = Any  # llvmlite has no types for mypy
Value: TypeAlias = Any


def are_literal(*arguments: types.Type) -> bool:
    """Whether Numba knows these arguments' values while it compiles; an intrinsic returns None until it does."""
    return all(isinstance(argument, types.IntegerLiteral) for argument in arguments)


@intrinsic
def pointer(typing_context: Any, address: Any) -> Any:
    """An address, for Numba's `carray`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return types.voidptr(types.uint64), generate


def floats(value: float, lanes: int = LANES) -> Value:
    return ir.Constant(ir.VectorType(F32, lanes), [value] * lanes)


def ints(value: int, lanes: int = LANES) -> Value:
    return ir.Constant(ir.VectorType(I32, lanes), [value] * lanes)


def at(builder: Builder, address: Value, num_bytes: Value | int) -> Value:
    """The address so many bytes on."""
    return builder.add(address, I64(num_bytes) if isinstance(num_bytes, int) else num_bytes)


def load(builder: Builder, address: Value, kind: ir.Type) -> Value:
    return builder.load(builder.inttoptr(address, kind.as_pointer()), align=1)


def store(builder: Builder, value: Value, address: Value) -> None:
    builder.store(value, builder.inttoptr(address, value.type.as_pointer()), align=1)


def prefetch(builder: Builder, address: Value, to_write: bool = False) -> None:
    """Has the cache line at an address fetched meanwhile; the address needn't be valid."""
    pointer = builder.inttoptr(address, I8.as_pointer())
    soon, as_data = I32(2), I32(1)
    call(builder, "llvm.prefetch.p0", ir.VoidType(), pointer, I32(int(to_write)), soon, as_data)


def splat(builder: Builder, value: Value, lanes: int = LANES) -> Value:
    """One number in all lanes."""
    undefined = ir.Constant(ir.VectorType(value.type, lanes), ir.Undefined)
    single = builder.insert_element(undefined, value, I32(0))
    return builder.shuffle_vector(single, undefined, ints(0, lanes))


def call(builder: Builder, name: str, result: ir.Type, *arguments: Value) -> Value:
    """Calls one of LLVM's intrinsics, or a function of the C library."""
    signature = ir.FunctionType(result, [argument.type for argument in arguments])
    return builder.call(cgutils.get_or_insert_function(builder.module, signature, name), arguments)


def fma(builder: Builder, first: Value, second: Value, addend: Value) -> Value:
    return call(builder, f"llvm.fma.v{first.type.count}f32", first.type, first, second, addend)


def maximum(builder: Builder, first: Value, second: Value) -> Value:
    """The greater of each two lanes, and the second where one is NaN: what one instruction does on most processors."""
    return builder.select(builder.fcmp_ordered(">", first, second), first, second)


def lanes_max(builder: Builder, value: Value) -> Value:
    """The greatest of 16 lanes; NaN may be passed over."""
    undefined = ir.Constant(FLOATS, ir.Undefined)
    for step in (8, 4, 2, 1):
        rotated = ir.Constant(INTS, [(lane + step) % LANES for lane in range(LANES)])
        value = maximum(builder, value, builder.shuffle_vector(value, undefined, rotated))
    return builder.extract_element(value, I32(0))


def lanes_sum(builder: Builder, value: Value) -> Value:
    """The sum of 16 lanes, halves first: always in this order."""
    undefined = ir.Constant(FLOATS, ir.Undefined)
    for step in (8, 4, 2, 1):
        rotated = ir.Constant(INTS, [(lane + step) % LANES for lane in range(LANES)])
        value = builder.fadd(value, builder.shuffle_vector(value, undefined, rotated))
    return builder.extract_element(value, I32(0))


def load_floats(builder: Builder, address: Value, kind: int, lanes: int = LANES) -> Value:
    """16 stored numbers, or so many, as float32."""
    stored = load(builder, address, ir.VectorType(_STORED[kind], lanes))
    wide = ir.VectorType(F32, lanes)
    if kind == FLOAT32:
        return stored
    if kind == FLOAT16 and _CONVERTS_HALVES:
        return builder.fpext(stored, wide)
    bits = builder.zext(stored, ir.VectorType(I32, lanes))
    if kind == FLOAT16:
        return _widened_half(builder, bits, lanes)
    return builder.bitcast(builder.shl(bits, ints(16, lanes)), wide)


def store_floats(builder: Builder, value: Value, address: Value, kind: int) -> None:
    """16 float32 as stored numbers, rounded to the nearest, ties to even."""
    if kind == BFLOAT16:
        bits = builder.bitcast(value, INTS)
        lowest = builder.and_(builder.lshr(bits, ints(16)), ints(1))
        bits = builder.add(bits, builder.add(lowest, ints(0x7FFF)))
        value = builder.trunc(builder.lshr(bits, ints(16)), SHORTS)
    elif kind == FLOAT16:
        value = builder.fptrunc(value, HALVES) if _CONVERTS_HALVES else _narrowed_half(builder, value)
    store(builder, value, address)


def _widened_half(builder: Builder, bits: Value, lanes: int) -> Value:
    """float32 of the bits of float16 by arithmetic: the exponents differ by 112."""
    size = builder.shl(builder.and_(bits, ints(0x7FFF, lanes)), ints(13, lanes))
    value = builder.fmul(builder.bitcast(size, ir.VectorType(F32, lanes)), floats(2.0**112, lanes))
    is_special = builder.icmp_unsigned(">=", size, ints(0x7C00 << 13, lanes))  # infinity or NaN
    special = builder.or_(size, ints(0x7F800000, lanes))
    size = builder.select(is_special, special, builder.bitcast(value, bits.type))
    sign = builder.shl(builder.and_(bits, ints(0x8000, lanes)), ints(16, lanes))
    return builder.bitcast(builder.or_(size, sign), value.type)


def _narrowed_half(builder: Builder, value: Value) -> Value:
    """The bits of float16, rounded to the nearest, ties to even, of float32."""
    bits = builder.bitcast(value, INTS)
    sign = builder.and_(bits, ints(1 << 31))
    size = builder.xor(bits, sign)
    lowest = builder.and_(builder.lshr(size, ints(13)), ints(1))
    rounded = builder.add(size, builder.add(lowest, ints(0xFFF - (112 << 23))))
    normal = builder.lshr(rounded, ints(13))
    # Below 2^-14 the addition of 0.5 rounds to multiples of 2^-24, and leaves how many in the lowest bits.
    shifted = builder.fadd(builder.bitcast(size, FLOATS), floats(0.5))
    small = builder.sub(builder.bitcast(shifted, INTS), ints(0x3F000000))
    half = builder.select(builder.icmp_unsigned("<", size, ints(113 << 23)), small, normal)
    half = builder.select(builder.icmp_unsigned(">=", size, ints(143 << 23)), ints(0x7C00), half)
    half = builder.select(builder.icmp_unsigned(">", size, ints(255 << 23)), ints(0x7E00), half)
    return builder.trunc(builder.or_(half, builder.lshr(sign, ints(16))), SHORTS)


def exp(builder: Builder, value: Value) -> Value:
    """e^value for values up to 0, within 2 units in the last place; 0 below -87.

    2^n times a polynomial in what is left (Cephes' expf, Moshier 1989): a library's own function would differ from one
    processor to the next.
    """
    bounded = maximum(builder, value, floats(-88.0))
    power = call(builder, "llvm.rint.v16f32", FLOATS, builder.fmul(bounded, floats(LOG2_E)))
    rest = fma(builder, power, floats(-0.693359375), bounded)
    rest = fma(builder, power, floats(2.12194440e-4), rest)
    series = floats(1.9875691500e-4)
    for coefficient in (1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1):
        series = fma(builder, series, rest, floats(coefficient))
    series = builder.fadd(fma(builder, series, builder.fmul(rest, rest), rest), floats(1.0))
    exponent = builder.shl(builder.add(builder.fptosi(power, INTS), ints(127)), ints(23))
    result = builder.fmul(series, builder.bitcast(exponent, FLOATS))
    result = builder.select(builder.fcmp_ordered("<", value, floats(-87.0)), floats(0.0), result)
    # A NaN must show in the end, not turn into a number on the way.
    return builder.select(builder.fcmp_unordered("uno", value, value), value, result)


def power_of_2(builder: Builder, value: Value, series: tuple[float, ...] = POWER_SERIES) -> Value:
    """2^value for finite values up to 0, 0 for what is below float32's range, NaN for NaN. Needs AVX-512.

    A polynomial in what is left over whole powers, scaled by these.
    """
    all_lanes, current_rounding, from_floor = I16(-1), I32(4), I32(1)
    zeros = floats(0.0)
    rest = call(builder, "llvm.x86.avx512.mask.reduce.ps.512", FLOATS, value, from_floor, zeros, all_lanes,
                current_rounding)  # fmt: skip
    factor = floats(series[-1])
    for coefficient in series[-2::-1]:
        factor = fma(builder, factor, rest, floats(coefficient))
    # Scales by 2 to the power of what is the value's floor.
    return call(builder, "llvm.x86.avx512.mask.scalef.ps.512", FLOATS, factor, value, zeros, all_lanes,
                current_rounding)  # fmt: skip


def inverse(builder: Builder, value: Value) -> Value:
    """1 / value within 1e-7 of itself, for normal numbers: an estimate of 14 digits, and one of Newton's steps. Needs
    AVX-512."""
    estimate = call(builder, "llvm.x86.avx512.rcp14.ps.512", FLOATS, value, floats(0.0), I16(-1))
    error = fma(builder, builder.fneg(value), estimate, floats(1.0))
    return fma(builder, estimate, error, estimate)


def variable(builder: Builder, initial: Value) -> Value:
    """A variable in the function's frame, which LLVM keeps in a register."""
    place = cgutils.alloca_once(builder, initial.type)
    builder.store(initial, place)
    return place
