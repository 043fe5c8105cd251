"""Products of matrix tiles: Intel's AMX, said in LLVM's terms.

A core has eight tile registers of 16 rows of 64 bytes. One instruction adds the product of two tiles of bfloat16 to a
tile of float32:

    C[m, n] += Σ over 16 pairs of columns  A[m, 2p] B[p, 2n] + A[m, 2p + 1] B[p, 2n + 1]

so A holds 16 rows of 32 columns as they are, and B holds 32 rows of 16 columns, each two rows woven into one. A row of
C depends on its own row of A alone, and the order of its sum is fixed.

Half of float32's digits are lost in bfloat16. Where that matters a number is kept as two, x = high + low, and a product
as three, high·high + high·low + low·high: 16 digits for three times the work. `terms` says which: 1 or 3 products.
"""

import ctypes
import sys
from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from . import simd
from .simd import FEATURES, FLOATS, I8, I64, LANES, compiled

ROWS = 16
COLUMNS = 32  # of A; a row has 64 bytes
TILE_BYTES = 1024
ROW_BYTES = 64
ONE_ROW = I64(ROW_BYTES)

_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA = 158, 0x1023, 18


@cache
def has_tiles() -> bool:
    """Whether this process may use tiles: the processor has them and Linux, asked once, lets us save their state."""
    if sys.platform != "linux" or not (FEATURES.get("amx-tile") and FEATURES.get("amx-bf16")):
        return False
    return ctypes.CDLL(None).syscall(_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA) == 0


def parts(terms: int) -> int:
    """How many bfloat16 stand for one number: high, or high and low."""
    return 1 if terms == 1 else 2


def tile_shapes() -> NDArray[np.uint8]:
    """What `configure` reads: all eight tiles at their full size (Intel's manual, LDTILECFG)."""
    shapes = np.zeros(64, np.uint8)
    shapes[0] = 1  # the palette
    shapes[16:32:2] = ROW_BYTES
    shapes[48:56] = ROWS
    return shapes


def _tile(builder: Any, name: str, *arguments: Any) -> None:
    simd.call(builder, f"llvm.x86.{name}", ir.VoidType(), *arguments)


def _pointer(builder: Any, address: Any) -> Any:
    return builder.inttoptr(address, I8.as_pointer())


def zero(builder: Any, tile: int) -> None:
    _tile(builder, "tilezero", I8(tile))


def load_tile(builder: Any, tile: int, address: Any, stride: Any = ONE_ROW) -> None:
    _tile(builder, "tileloadd64", I8(tile), _pointer(builder, address), stride)


def store_tile(builder: Any, tile: int, address: Any, stride: Any = ONE_ROW) -> None:
    _tile(builder, "tilestored64", I8(tile), _pointer(builder, address), stride)


def multiply(builder: Any, total: int, first: int, second: int) -> None:
    """Adds the product of tiles `first` and `second` to tile `total`."""
    _tile(builder, "tdpbf16ps", I8(total), I8(first), I8(second))


@intrinsic
def configure(typing_context: Any, shapes):  # type: ignore[no-untyped-def]
    """Makes the thread's tiles ready; `shapes` is the address of `tile_shapes()`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _tile(builder, "ldtilecfg", _pointer(builder, arguments[0]))
        return context.get_dummy_value()

    return types.void(types.uint64), generate


@intrinsic
def release(typing_context: Any):  # type: ignore[no-untyped-def]
    """Gives the tiles back, so that the system needn't save them whenever the thread pauses."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _tile(builder, "tilerelease")
        return context.get_dummy_value()

    return types.void(), generate


def high_bits(builder: Any, value: Any) -> Any:
    """float32 rounded to the nearest bfloat16, as the upper half of int32 with zeros below."""
    bits = builder.bitcast(value, simd.INTS)
    lowest = builder.and_(builder.lshr(bits, simd.ints(16)), simd.ints(1))
    bits = builder.add(bits, builder.add(lowest, simd.ints(0x7FFF)))
    return builder.and_(bits, simd.ints(0xFFFF0000 - (1 << 32)))


def split(builder: Any, value: Any, num_parts: int) -> list[Any]:
    """A vector of float32 as `num_parts` vectors whose sum it is, each with a bfloat16's digits, as int32."""
    pieces = [high_bits(builder, value)]
    if num_parts == 2:
        rest = builder.fsub(value, builder.bitcast(pieces[0], FLOATS))
        pieces.append(high_bits(builder, rest))
    return pieces


def store_row_half(builder: Any, value: Any, place: Any, num_parts: int) -> None:
    """16 float32 as half a row of A; the low parts go to the tile that follows."""
    for part, bits in enumerate(split(builder, value, num_parts)):
        narrow = builder.trunc(builder.lshr(bits, simd.ints(16)), simd.SHORTS)
        simd.store(builder, narrow, simd.at(builder, place, part * TILE_BYTES))


def store_woven(builder: Any, even: Any, odd: Any, place: Any, num_parts: int) -> None:
    """Two rows of 16 float32 as one row of B; the low parts go to the tile that follows."""
    pairs = zip(split(builder, even, num_parts), split(builder, odd, num_parts), strict=True)
    for part, (first, second) in enumerate(pairs):
        woven = builder.or_(builder.lshr(first, simd.ints(16)), second)
        simd.store(builder, woven, simd.at(builder, place, part * TILE_BYTES))


@compiled()
def aligned_floats(num_floats):  # type: ignore[no-untyped-def]
    """Memory for float32 that begins on a cache line: a tile whose rows cross lines takes twice as long to load."""
    memory = np.empty(num_floats + ROW_BYTES // 4, np.float32)
    start = (ROW_BYTES - memory.ctypes.data % ROW_BYTES) % ROW_BYTES // 4
    return memory[start : start + num_floats]


assert LANES == ROWS  # a vector is a row of C
