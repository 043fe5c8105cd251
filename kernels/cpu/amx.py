"""Products of matrix tiles: Intel's AMX, said in LLVM's terms.

A core has eight tile registers of 16 rows of 64 bytes. One instruction adds the product of two tiles of bfloat16 to a
tile of float32:

    C[m, n] += Σ over 16 pairs of columns  A[m, 2p] B[p, 2n] + A[m, 2p + 1] B[p, 2n + 1]

so A holds 16 rows of 32 columns as they are, and B holds 32 rows of 16 columns, each two rows woven into one. A row of
C depends on its own row of A alone, and the order of its sum is fixed.

Half of float32's digits are lost in bfloat16. Where that matters a number is kept as two, x = high + low, and a product
as three, high·high + high·low + low·high: 16 digits for three times the work. `terms` says which: FAST or EXACT.
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
from .bfloat16 import narrow, narrow_pair
from .simd import FEATURES, FLOATS, I8, I64, LANES, compiled

ROWS = 16
COLUMNS = 32  # of A; a row has 64 bytes
TILE_BYTES = 1024
ROW_BYTES = 64
ONE_ROW, ONE_TILE = I64(ROW_BYTES), I64(TILE_BYTES)
FAST, EXACT = 1, 3  # products for each product: `terms`
UPPER_HALF = 0xFFFF0000 - (1 << 32)  # as a signed number

NEEDED = ("amx-tile", "amx-bf16", "avx512f", "avx512dq", "avx512bf16")
_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA = 158, 0x1023, 18


@cache
def has_tiles() -> bool:
    """Whether this process may use tiles: the processor has them and Linux, asked once, lets us save their state."""
    if sys.platform != "linux" or not all(FEATURES.get(feature) for feature in NEEDED):
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


tile_shapes_compiled = compiled()(tile_shapes)
"""The same for compiled functions."""


def _tile(builder: Any, name: str, *arguments: Any) -> None:
    simd.call(builder, f"llvm.x86.{name}", ir.VoidType(), *arguments)


def _pointer(builder: Any, address: Any) -> Any:
    return builder.inttoptr(address, I8.as_pointer())


def zero(builder: Any, tile: int) -> None:
    _tile(builder, "tilezero", I8(tile))


def load_tile(builder: Any, tile: int, address: Any, stride: Any = ONE_ROW, passes_by: bool = False) -> None:
    """`passes_by` says that it isn't needed again soon: the nearest cache then keeps what it has."""
    name = "tileloaddt164" if passes_by else "tileloadd64"
    _tile(builder, name, I8(tile), _pointer(builder, address), stride)


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


def split(builder: Any, value: Any, num_parts: int) -> list[Any]:
    """A vector of float32 as its high part, exact in bfloat16, and what is left; or as itself, to be rounded."""
    if num_parts == 1:
        return [value]
    bits = builder.and_(builder.bitcast(value, simd.INTS), simd.ints(UPPER_HALF))
    high = builder.bitcast(bits, FLOATS)
    return [high, builder.fsub(value, high)]


def store_row(builder: Any, first: Any, second: Any, place: Any, num_parts: int, part_step: Any = ONE_TILE) -> None:
    """Two vectors of 16 float32 as a row of A; the low parts go `part_step` bytes on."""
    pairs = zip(split(builder, first, num_parts), split(builder, second, num_parts), strict=True)
    for part, pair in enumerate(pairs):
        simd.store(builder, narrow_pair(builder, *pair), place if part == 0 else simd.at(builder, place, part_step))


def store_half_row(builder: Any, value: Any, place: Any, num_parts: int) -> None:
    """16 float32 as half a row of A; the low part goes to the tile that follows."""
    for part, piece in enumerate(split(builder, value, num_parts)):
        simd.store(builder, narrow(builder, piece), simd.at(builder, place, part * TILE_BYTES))


def store_woven(builder: Any, even: Any, odd: Any, place: Any, num_parts: int) -> None:
    """Two rows of 16 float32 as one row of B; the low parts go to the tile that follows."""
    if num_parts == 1:
        half = simd.ints(1 << 15)  # adding it makes cutting off round to the nearest
        even, odd = (builder.add(builder.bitcast(row, simd.INTS), half) for row in (even, odd))
        simd.store(builder, _woven_tops(builder, even, odd), place)
        return
    for part, rows in enumerate(zip(split(builder, even, 2), split(builder, odd, 2), strict=True)):
        bits = [builder.bitcast(row, simd.INTS) for row in rows]
        simd.store(builder, _woven_tops(builder, *bits), simd.at(builder, place, part * TILE_BYTES))


def _woven_tops(builder: Any, even: Any, odd: Any) -> Any:
    """The upper halves of two vectors of 16 int32, taking turns."""
    return builder.or_(builder.lshr(even, simd.ints(16)), builder.and_(odd, simd.ints(UPPER_HALF)))


@compiled()
def aligned_floats(num_floats):  # type: ignore[no-untyped-def]
    """Memory for float32 that begins on a cache line: a tile whose rows cross lines takes twice as long to load."""
    memory = np.empty(num_floats + ROW_BYTES // 4, np.float32)
    start = (ROW_BYTES - memory.ctypes.data % ROW_BYTES) % ROW_BYTES // 4
    return memory[start : start + num_floats]


assert LANES == ROWS  # a vector is a row of C
