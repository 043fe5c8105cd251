"""Layers by matrix tiles of bytes: to the bit what vectors give; and the rounding that a gated layer does itself."""

from functools import cache

import numpy as np
import pytest

from paged_chat.kernels.cpu import amx
from paged_chat.kernels.cpu.byte_tiles import AT_ONCE, SCRATCH_BYTES, byte_tile_shapes_compiled, has_byte_tiles
from paged_chat.kernels.cpu.grouped_weights import pack, quantise
from paged_chat.kernels.cpu.packed_linear import gated_linear, linear
from paged_chat.kernels.cpu.rounding import quantise_row
from paged_chat.kernels.cpu.rows import silu_mul_row
from paged_chat.kernels.cpu.simd import FLOAT32, compiled
from paged_chat.kernels.cpu.tile_rows import ACTIVATION_BYTES, GROUP
from paged_chat.kernels.cpu.work_sharing import new_counters

needs_byte_tiles = pytest.mark.skipif(not has_byte_tiles(), reason="this processor, or this system, has no such tiles")
NUM_OUT = 128


@cache
def compile_both(bits, byte_tiles):
    """A layer, and a gated one, of the same weights and rows."""

    @compiled()
    def step(counters, packed, bias, hidden, quants, scales, sums, output, gated_quants, gated_scales, gated_sums):
        shapes, memory = byte_tile_shapes_compiled(), amx.aligned_floats(SCRATCH_BYTES // 4)
        strip = amx.aligned_floats(AT_ONCE * 2 * GROUP).reshape(AT_ONCE, 2 * GROUP)
        scratch = np.uint64(memory.ctypes.data)
        num_rows = hidden.shape[0]
        for row in range(num_rows):
            quantise_row(hidden[row], quants[row], scales[row], sums[row])
        if byte_tiles:
            amx.configure(np.uint64(shapes.ctypes.data))
        spans = np.array([[0, 0, num_rows]])
        linear(bits, byte_tiles, 0, counters, 0, spans, packed, bias, quants, scales, sums, output, scratch)
        gated_linear(bits, byte_tiles, 0, counters, 1, spans, packed, bias, quants, scales, sums, scratch,
                     strip, gated_quants, gated_scales, gated_sums)  # fmt: skip
        if byte_tiles:
            amx.release()
        return memory.size + shapes.size  # kept until here, for only their addresses were used

    return step


@compiled()
def gate_then_round(output, quants, scales, sums):
    """What a gated layer gives, of a layer's output [rows, gates and ups]."""
    activation = np.empty(output.shape[1] // 2, np.float32)
    for row in range(output.shape[0]):
        silu_mul_row(FLOAT32, output[row], activation)
        quantise_row(activation, quants[row], scales[row], sums[row])


def room(num_rows, num_columns):
    """Quants of whole eights of rows, scales and sums."""
    padded_rows = -(-num_rows // AT_ONCE) * AT_ONCE
    tables = np.zeros((2, num_rows, num_columns // GROUP), np.float32)
    return np.full((padded_rows, ACTIVATION_BYTES, num_columns), 77, np.int8), tables[0], tables[1]


def compute(bits, byte_tiles, num_rows, num_columns, has_bias):
    generator = np.random.default_rng(9)
    packed = pack(quantise(generator.standard_normal((NUM_OUT, num_columns), dtype=np.float32), bits), bits)
    hidden = generator.standard_normal((num_rows, num_columns), dtype=np.float32)
    hidden[0] = np.tile([1.0, -1.0], num_columns // 2)  # the largest bytes everywhere
    bias = generator.standard_normal(NUM_OUT if has_bias else 0, dtype=np.float32)
    output, gated = np.empty((num_rows, NUM_OUT), np.float32), room(num_rows, NUM_OUT // 2)
    compile_both(bits, byte_tiles)(new_counters(2), packed, bias, hidden, *room(num_rows, num_columns), output, *gated)
    return output, gated


def digest(num_rows, output, gated):
    quants, scales, sums = gated
    return [part.tobytes() for part in (output, quants[:num_rows], scales, sums)]


@needs_byte_tiles
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("num_columns", [2 * GROUP, 6 * GROUP, 5 * GROUP])
def test_tiles_give_to_the_bit_what_vectors_give(bits, num_columns):
    """Up to four rows, and what eights leave of them, are for vectors; so is an odd number of groups."""
    for num_rows in (1, 4, 5, 8, 12, 13, 23):
        for has_bias in (False, True):
            expected = compute(bits, 0, num_rows, num_columns, has_bias)
            assert digest(num_rows, *compute(bits, 1, num_rows, num_columns, has_bias)) == digest(num_rows, *expected)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("num_rows", [1, 11])
def test_a_gated_layer_is_a_layer_then_its_gates_then_rounding(bits, num_rows):
    output, gated = compute(bits, 0, num_rows, 3 * GROUP, True)
    expected = room(num_rows, NUM_OUT // 2)
    gate_then_round(output, *expected)
    assert digest(num_rows, output, gated) == digest(num_rows, output, expected)
