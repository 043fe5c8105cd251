"""Vector instructions for Numba functions, said in LLVM's terms.

Numba turns loops over arrays into vector code only where it can prove that to be safe, and keeps accumulators in
memory. The few inner loops that decide the speed are therefore built from these pieces with LLVM's own builder, inside
Numba intrinsics. LLVM maps the 16-lane vectors to what the processor has: one AVX-512 register, two of AVX2, four of
NEON. Sums are always taken in the same order, so a result doesn't depend on what is computed beside it.
"""

import zlib
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import llvmlite.binding as llvm
from llvmlite import ir
from numba import config, njit, types
from numba.core import cgutils

compiled = partial(njit, nogil=True, error_model="numpy")
"""Numba's decorator as all our kernels want it: the interpreter lock is free, and a division by 0 gives inf or NaN."""

SOURCE_STAMP = zlib.crc32(b"".join(path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py"))))
"""Numba keeps compiled code until the file of its outermost function changes, and doesn't look at what that calls. A
function that is kept refers to this number, which makes it a part of the key: any change here compiles it anew."""

LANES = 16
I8, I16, I32, I64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))
F32, F16 = ir.FloatType(), ir.HalfType()
BYTES = ir.VectorType(I8, 4 * LANES)
INTS = ir.VectorType(I32, LANES)
SHORTS = ir.VectorType(I16, LANES)
FLOATS = ir.VectorType(F32, LANES)
HALVES = ir.VectorType(F16, LANES)


def _target_features() -> dict[str, bool]:
    """Of the processor that Numba compiles for: its variables NUMBA_CPU_NAME and NUMBA_CPU_FEATURES may say another."""
    if config.CPU_FEATURES is None:
        return dict(llvm.get_host_cpu_features())
    return {feature[1:]: feature.startswith("+") for feature in config.CPU_FEATURES.split(",") if feature}


FEATURES = _target_features()

FLOAT32, BFLOAT16, FLOAT16 = 0, 1, 2
"""Kinds of stored numbers, as literal arguments of intrinsics; everything is computed in float32."""

POWER_SERIES = (1.0000000755, 0.69314718803, 0.24022107485, 0.055503571142, 0.0096760319183, 0.0013390863364)
"""Coefficients of 2^x for x from -1/2 to 1/2."""

ITEM_SIZE = {FLOAT32: 4, BFLOAT16: 2, FLOAT16: 2}
_STORED = {FLOAT32: FLOATS, BFLOAT16: SHORTS, FLOAT16: HALVES}

Builder: TypeAlias = Any  # llvmlite has no types for mypy
Value: TypeAlias = Any


def are_literal(*arguments: types.Type) -> bool:
    """Whether Numba knows these arguments' values while it compiles; an intrinsic returns None until it does."""
    return all(isinstance(argument, types.IntegerLiteral) for argument in arguments)


def floats(value: float) -> Value:
    return ir.Constant(FLOATS, [value] * LANES)


def ints(value: int) -> Value:
    return ir.Constant(INTS, [value] * LANES)


def at(builder: Builder, address: Value, num_bytes: Value | int) -> Value:
    """The address so many bytes on."""
    return builder.add(address, I64(num_bytes) if isinstance(num_bytes, int) else num_bytes)


def load(builder: Builder, address: Value, kind: ir.Type) -> Value:
    return builder.load(builder.inttoptr(address, kind.as_pointer()), align=1)


def store(builder: Builder, value: Value, address: Value) -> None:
    builder.store(value, builder.inttoptr(address, value.type.as_pointer()), align=1)


def splat(builder: Builder, value: Value) -> Value:
    """One number in all lanes."""
    undefined = ir.Constant(ir.VectorType(value.type, LANES), ir.Undefined)
    single = builder.insert_element(undefined, value, I32(0))
    return builder.shuffle_vector(single, undefined, ints(0))


def call(builder: Builder, name: str, result: ir.Type, *arguments: Value) -> Value:
    """Calls one of LLVM's intrinsics, or a function of the C library."""
    signature = ir.FunctionType(result, [argument.type for argument in arguments])
    return builder.call(cgutils.get_or_insert_function(builder.module, signature, name), arguments)


def fma(builder: Builder, first: Value, second: Value, addend: Value) -> Value:
    return call(builder, "llvm.fma.v16f32", FLOATS, first, second, addend)


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


def load_floats(builder: Builder, address: Value, kind: int) -> Value:
    """16 stored numbers as float32."""
    stored = load(builder, address, _STORED[kind])
    if kind == FLOAT32:
        return stored
    if kind == FLOAT16:
        return builder.fpext(stored, FLOATS)
    return builder.bitcast(builder.shl(builder.zext(stored, INTS), ints(16)), FLOATS)


def store_floats(builder: Builder, value: Value, address: Value, kind: int) -> None:
    """16 float32 as stored numbers, rounded to the nearest, ties to even."""
    if kind == BFLOAT16:
        bits = builder.bitcast(value, INTS)
        lowest = builder.and_(builder.lshr(bits, ints(16)), ints(1))
        bits = builder.add(bits, builder.add(lowest, ints(0x7FFF)))
        value = builder.trunc(builder.lshr(bits, ints(16)), SHORTS)
    elif kind == FLOAT16:
        value = builder.fptrunc(value, HALVES)
    store(builder, value, address)


def exp(builder: Builder, value: Value) -> Value:
    """e^value for values up to 0, within 2 units in the last place; 0 below -87.

    2^n times a polynomial in what is left (Cephes' expf, Moshier 1989): a library's own function would differ from one
    processor to the next.
    """
    bounded = maximum(builder, value, floats(-88.0))
    power = call(builder, "llvm.rint.v16f32", FLOATS, builder.fmul(bounded, floats(1.4426950408889634)))
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


def power_of_2(builder: Builder, value: Value) -> Value:
    """2^value for values up to 0, within 2e-7 of itself; 0 below -126, NaN for NaN. Needs AVX-512.

    2^n times a polynomial in what is left: the interpolation of 2^x at six Chebyshev points of [-1/2, 1/2].
    """
    is_normal = builder.fcmp_unordered(">=", value, floats(-126.0))
    power = call(builder, "llvm.rint.v16f32", FLOATS, value)
    rest = builder.fsub(value, power)
    series = floats(POWER_SERIES[-1])
    for coefficient in POWER_SERIES[-2::-1]:
        series = fma(builder, series, rest, floats(coefficient))
    lanes, current_rounding = builder.bitcast(is_normal, I16), I32(4)
    return call(builder, "llvm.x86.avx512.mask.scalef.ps.512", FLOATS, series, power, floats(0.0), lanes,
                current_rounding)  # fmt: skip


def inverse(builder: Builder, value: Value) -> Value:
    """1 / value within 1e-7 of itself, for normal numbers: an estimate of 14 digits, and one of Newton's steps. Needs
    AVX-512."""
    estimate = call(builder, "llvm.x86.avx512.rcp14.ps.512", FLOATS, value, floats(0.0), I16(-1))
    error = fma(builder, builder.fneg(value), estimate, floats(1.0))
    return fma(builder, estimate, error, estimate)


def dot_fours(builder: Builder, total: Value, unsigned: Value, signed: Value) -> Value:
    """total (16 int32) plus the products of 64 unsigned and 64 signed bytes, each four summed; exact."""
    if FEATURES.get("avx512vnni"):
        return call(builder, "llvm.x86.avx512.vpdpbusd.512", INTS, total, unsigned, signed)
    undefined = ir.Constant(BYTES, ir.Undefined)
    for place in range(4):
        every_fourth = ir.Constant(INTS, list(range(place, 4 * LANES, 4)))
        first = builder.zext(builder.shuffle_vector(unsigned, undefined, every_fourth), INTS)
        second = builder.sext(builder.shuffle_vector(signed, undefined, every_fourth), INTS)
        total = builder.add(total, builder.mul(first, second))
    return total


def variable(builder: Builder, initial: Value) -> Value:
    """A variable in the function's frame, which LLVM keeps in a register."""
    place = cgutils.alloca_once(builder, initial.type)
    builder.store(initial, place)
    return place
