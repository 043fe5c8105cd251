"""Weights in 4 and 8 bits: what rounding keeps, and products that come out the same whatever runs beside them."""

from functools import cache

import gguf
import numpy as np
import pytest

from paged_chat.kernels.cpu.grouped_weights import LARGEST, GroupedWeights, pack, quantise
from paged_chat.kernels.cpu.packed_linear import linear
from paged_chat.kernels.cpu.rounding import quantise_row, round_row
from paged_chat.kernels.cpu.row_spans import CAN_BE_COARSE
from paged_chat.kernels.cpu.simd import LANES, compiled
from paged_chat.kernels.cpu.team import Team
from paged_chat.kernels.cpu.tile_rows import (
    ACTIVATION_BYTES,
    ARE_PAIRED,
    GROUP,
    PAIR_ORDER,
    STEPS,
    group_bytes,
    middle_of,
)
from paged_chat.kernels.cpu.work_sharing import new_counters

NO_BIAS = np.empty(0, np.float32)


@pytest.fixture
def generator():
    return np.random.default_rng(5)


def normal(generator, *shape):
    return generator.standard_normal(shape, dtype=np.float32)


def make_multiply(bits):
    """linear over rows that are rounded first, as the packed step does both."""

    @compiled()
    def step(counters, packed, bias, hidden, quants, scales, sums, output):
        for row in range(hidden.shape[0]):
            quantise_row(hidden[row], quants[row], scales[row], sums[row])
        spans = np.array([[0, 0, hidden.shape[0]]])
        linear(bits, 0, 0, counters, 0, spans, packed, bias, quants, scales, sums, output, np.uint64(0))

    def multiply(weights, hidden, bias=NO_BIAS, team=None):
        hidden = np.ascontiguousarray(hidden)
        num_out, num_rows = len(weights.quants), len(hidden)
        packed = pack(weights, bits)
        if len(bias):
            bias = np.pad(bias, (0, len(packed) * LANES - num_out))
        scales = np.empty((num_rows, hidden.shape[1] // GROUP), np.float32)
        quants = np.empty((num_rows, ACTIVATION_BYTES, hidden.shape[1]), np.int8)
        output = np.full((num_rows, len(packed) * LANES), np.nan, np.float32)
        (team or Team(1)).run(
            step, new_counters(1), packed, bias, hidden, quants, scales, np.empty_like(scales), output
        )
        return output[:, :num_out]

    return multiply


@cache
def compiled_multiply(bits):
    return make_multiply(bits)


@pytest.fixture
def multiply(bits):
    return compiled_multiply(bits)


both_widths = pytest.mark.parametrize("bits", [4, 8])


# Rounding


@pytest.mark.parametrize(("bits", "kind"), [(4, "Q4_0"), (4, "Q4_1"), (8, "Q4_0"), (8, "Q4_1"), (8, "Q8_0")])
def test_values_that_came_from_a_gguf_file_are_taken_over_exactly(generator, bits, kind):
    kind = gguf.GGMLQuantizationType[kind]
    values = gguf.dequantize(gguf.quantize(normal(generator, 300, 256) * 0.05, kind), kind)
    np.testing.assert_array_equal(quantise(values, bits).dense(), values)


def test_values_of_mixed_origin_keep_what_each_can_keep(generator):
    """A layer's queries and keys in 4 bits, its values in 8, joined into one matrix."""
    parts = [
        gguf.dequantize(gguf.quantize(normal(generator, 100, 64), kind), kind)
        for kind in (gguf.GGMLQuantizationType.Q4_1, gguf.GGMLQuantizationType.Q8_0)
    ]
    np.testing.assert_array_equal(quantise(np.concatenate(parts), 8).dense(), np.concatenate(parts))


@pytest.mark.parametrize(("bits", "steps"), [(4, 15), (8, 254)])
def test_other_values_are_off_by_half_a_step(generator, bits, steps):
    values = normal(generator, 50, 4, GROUP) + np.float32(0.3)
    error = np.abs(quantise(values.reshape(50, -1), bits).dense().reshape(values.shape) - values).max(axis=2)
    width = np.ptp(values, axis=2) if bits == 4 else 2 * np.abs(values).max(axis=2)
    # The scale itself is rounded to 11 bits; of two ways to round 4 bits, one with larger errors may do better on
    # the whole, but never worse than half a step of the coarser.
    assert (error <= (0.5 if bits == 8 else 1.0) * width / steps + 1e-3 * np.abs(values).max(axis=2)).all()


def test_four_bits_choose_the_better_of_both_ways(generator):
    values = normal(generator, 1000, GROUP)
    least, width = values.min(axis=1, keepdims=True), np.ptp(values, axis=1, keepdims=True)
    by_range = np.rint((values - least) / width * 15) * width / 15 + least
    error = np.square(quantise(values, 4).dense() - values).mean()
    assert error < 0.97 * np.square(by_range - values).mean()


@both_widths
def test_groups_of_zeros_and_of_one_number(bits):
    values = np.zeros((3, 2 * GROUP), np.float32)
    values[1, GROUP:], values[2, :GROUP] = -0.5, 0.25
    np.testing.assert_allclose(quantise(values, bits).dense(), values, rtol=5e-4)
    assert (quantise(values, bits).dense()[values == 0] == 0).all()


@both_widths
def test_negative_values_keep_their_place(bits):
    values = -np.linspace(0.1, 3, 4 * GROUP, dtype=np.float32).reshape(2, -1)
    rounded = quantise(values, bits).dense()
    assert (np.diff(rounded) <= 0).all()
    assert np.abs(rounded - values).max() < 0.03


@both_widths
def test_tiny_values_vanish_within_the_smallest_step_of_float16(generator, bits):
    values = normal(generator, 10, GROUP) * np.float32(1e-9)
    assert np.abs(quantise(values, bits).dense() - values).max() < 2**-24


@both_widths
def test_huge_values_within_float16_are_off_by_half_a_step(bits):
    values = np.linspace(-LARGEST, LARGEST, 4 * GROUP, dtype=np.float32).reshape(1, -1)
    rounded = quantise(values, bits).dense()
    assert np.abs(rounded - values).max() <= (LARGEST / 127 * 1.01 if bits == 8 else LARGEST / 15 / 4 * 1.05)


@both_widths
@pytest.mark.parametrize("value", [7e4, 1e7, 3e38, np.inf])
def test_what_float16_cannot_hold_becomes_its_largest_number_and_never_infinity(bits, value):
    values = np.full((1, 3 * GROUP), 0.5, np.float32)
    values[0, 0], values[0, GROUP] = value, -value
    rounded = quantise(values, bits)
    assert np.isfinite(rounded.scales).all()
    assert np.isfinite(rounded.minima).all()
    dense = rounded.dense()[0]
    assert dense[0] == pytest.approx(LARGEST, rel=0.01)
    assert dense[GROUP] == pytest.approx(-LARGEST, rel=0.01)
    np.testing.assert_allclose(dense[2 * GROUP :], 0.5, rtol=1e-3)


@both_widths
@pytest.mark.filterwarnings("error")
def test_nan_stays_nan_in_its_own_group(bits):
    values = np.full((2, 2 * GROUP), 0.5, np.float32)
    values[1, 3] = np.nan
    is_nan = np.isnan(quantise(values, bits).dense())
    assert (is_nan.sum(), is_nan[1, :GROUP].sum()) == (GROUP, GROUP)


@both_widths
def test_a_matrix_of_many_rows_is_rounded_as_its_parts_are(generator, bits):
    values = normal(generator, 5000, GROUP)
    whole, end = quantise(values, bits), quantise(values[4090:], bits)
    np.testing.assert_array_equal(whole.dense()[4090:], end.dense())


# Packing


def test_bytes_of_a_group_with_its_scales():
    assert (group_bytes(4), group_bytes(8)) == (256 + 64, 512 + 64)


@both_widths
def test_missing_rows_of_the_last_tile_are_zeros(generator, bits):
    packed = pack(quantise(normal(generator, 17, 2 * GROUP), bits), bits)
    assert packed.shape == (2, 2, group_bytes(bits))
    scales = packed[1, :, -2 * 2 * LANES :].view(np.float16).reshape(2, 2, LANES)  # [groups, d or m, rows]
    assert (scales[:, :, 0] != 0).all()
    assert (scales[:, :, 1:] == 0).all()


def test_a_byte_of_four_bits_holds_two_columns_that_stand_16_apart():
    quants = np.zeros((LANES, GROUP), np.uint8)
    quants[2, 5], quants[2, 5 + 16] = 3, 9  # of column four 1, the second byte; its partner is four 5
    packed = pack(GroupedWeights(quants, np.ones((LANES, 1), np.float16), np.zeros((LANES, 1), np.float16)), 4)
    fours = packed[0, 0, :256].reshape(4, LANES, 4)
    assert np.argwhere(fours).tolist() == [[1, 2, 1]]
    assert fours[1, 2, 1] == 3 + 16 * 9


# Rounding a row of activations


def whole_numbers(quants):  # int8 [ACTIVATION_BYTES, columns] → int64 [columns]
    """What the bytes of a rounded row stand for, in either of the forms that processors want them in."""
    if ARE_PAIRED:
        return quants.view(np.int16).reshape(-1, 4)[:, np.argsort(PAIR_ORDER)].reshape(-1).astype(np.int64)
    return STEPS * quants[0].astype(np.int64) + quants[1]


def rounded_row(values):
    """(the values that the bytes stand for, in float64; scales; sums)"""
    quants = np.full((ACTIVATION_BYTES, len(values)), 99, np.int8)
    scales, sums = np.empty((2, len(values) // GROUP), np.float32)
    quantise_row(values, quants, scales, sums)
    whole = whole_numbers(quants)
    assert np.abs(whole).max(initial=0) <= 127 * STEPS
    by_group = whole.reshape(-1, GROUP)
    np.testing.assert_array_equal(sums, scales * by_group.sum(axis=1).astype(np.float32))
    return (by_group * scales.astype(np.float64)[:, None]).reshape(-1), scales


def test_a_row_is_off_by_half_a_step_of_its_groups_largest(generator):
    steps = 127 * 256
    values = normal(generator, 40 * GROUP) * np.repeat(10.0 ** generator.uniform(-20, 20, 40), GROUP).astype(np.float32)
    rounded, scales = rounded_row(values)
    largest = np.abs(values).reshape(-1, GROUP).max(axis=1)
    np.testing.assert_allclose(scales, largest / steps, rtol=1e-6)
    error = np.abs(rounded - values).reshape(-1, GROUP).max(axis=1)
    # Beside the half step, the rounding of float32 itself.
    assert (error <= largest * (0.5 / steps + 4e-7)).all()


def test_a_row_of_zeros_is_zeros():
    rounded, scales = rounded_row(np.zeros(2 * GROUP, np.float32))
    assert (rounded == 0).all()
    assert (scales == 0).all()


def test_a_row_of_the_smallest_numbers_is_next_to_nothing(generator):
    """Here the factor that makes integers of them overflows; what comes out is off, but no more than they are small."""
    values = normal(generator, GROUP) * np.float32(1e-38)
    quants, (scales, sums) = np.zeros((ACTIVATION_BYTES, GROUP), np.int8), np.empty((2, 1), np.float32)
    quantise_row(values, quants, scales, sums)
    assert np.abs(whole_numbers(quants) * scales.astype(np.float64)).max() < 1e-35
    assert np.abs(sums).max() < 1e-28


def test_the_largest_is_exact_on_either_side():
    values = np.zeros(2 * GROUP, np.float32)
    values[3], values[GROUP + 4] = 1.5, -1.5
    rounded, _ = rounded_row(values)
    np.testing.assert_allclose(rounded, values, rtol=1e-7)


# Products


def expected_product(weights, hidden, bias=NO_BIAS):
    product = hidden.astype(np.float64) @ weights.dense().astype(np.float64).T
    return product + bias if len(bias) else product


@both_widths
def test_products_are_those_of_the_dense_weights(generator, multiply, bits):
    weights = quantise(normal(generator, 77, 5 * GROUP), bits)
    bias = normal(generator, 77)
    for num_rows in (*range(1, 18), 64):
        hidden = normal(generator, num_rows, 5 * GROUP)
        for chosen in (NO_BIAS, bias):
            expected = expected_product(weights, hidden, chosen)
            error = np.abs(multiply(weights, hidden, chosen) - expected).max()
            assert error < 1e-4 * expected.std(), f"{num_rows} rows"


@both_widths
def test_a_row_alone_equals_the_same_row_among_others_to_the_bit(generator, multiply, bits):
    weights = quantise(normal(generator, 90, 3 * GROUP), bits)
    hidden = normal(generator, 100, 3 * GROUP)
    together = multiply(weights, hidden)
    for row in range(100):
        np.testing.assert_array_equal(multiply(weights, hidden[row : row + 1])[0], together[row])
    for start, stop in [(0, 2), (1, 5), (3, 11), (7, 22), (40, 99)]:
        np.testing.assert_array_equal(multiply(weights, hidden[start:stop]), together[start:stop])


@pytest.mark.parametrize("bits", [8])
def test_threads_that_share_a_layer_give_the_same_bits(generator, multiply):
    weights = quantise(normal(generator, 800, 3 * GROUP), 8)
    hidden = normal(generator, 9, 3 * GROUP)
    alone, team = multiply(weights, hidden), Team(3)
    for _ in range(20):
        np.testing.assert_array_equal(multiply(weights, hidden, team=team), alone)


@pytest.mark.parametrize("bits", [4, 8])
def test_the_largest_bytes_do_not_overflow(multiply, bits):
    weights = quantise(np.tile([1.0, -1.0], (LANES, 64)).astype(np.float32), bits)
    hidden = np.tile([1.0, -1.0], (3, 64)).astype(np.float32)
    np.testing.assert_allclose(multiply(weights, hidden), 128, rtol=1e-3)


@pytest.mark.parametrize("bits", [8])
def test_nan_in_a_row_shows_in_that_row_only(generator, multiply):
    weights = quantise(normal(generator, 20, 2 * GROUP), 8)
    hidden = normal(generator, 12, 2 * GROUP)
    expected = multiply(weights, hidden)
    hidden[4, 40], hidden[9, 0] = np.nan, np.inf
    product = multiply(weights, hidden)
    assert np.isnan(product[4]).all()
    assert not np.isfinite(product[9]).any()
    others = [row for row in range(12) if row not in (4, 9)]
    np.testing.assert_array_equal(product[others], expected[others])


# Coarse rows


def split(weights):
    """(d, q, m) of weights, float64 [out, groups, 1] and [out, groups, GROUP]."""
    quants = weights.quants.reshape(len(weights.quants), -1, GROUP).astype(np.float64)
    return weights.scales.astype(np.float64)[..., None], quants, weights.minima.astype(np.float64)[..., None]


@cache
def compiled_coarse(bits):
    middle = middle_of(bits)

    @compiled()
    def step(counters, spans, packed, hidden, quants, scales, sums, output):
        for row in range(hidden.shape[0]):
            is_coarse = spans[0, 0] <= row < spans[0, 0] + spans[0, 1]
            round_row(middle, is_coarse, np.uint64(hidden[row].ctypes.data), np.uint64(hidden.shape[1] // GROUP),
                      np.uint64(quants[row].ctypes.data), np.uint64(quants.strides[1]),
                      np.uint64(scales[row].ctypes.data), np.uint64(sums[row].ctypes.data))  # fmt: skip
        linear(bits, 0, middle, counters, 0, spans, packed, hidden[0, :0], quants, scales, sums, output, np.uint64(0))

    return step


def multiply_coarsely(weights, hidden, spans, bits=4):
    """`multiply`, with the first span's coarse rows rounded to one byte."""
    packed = pack(weights, bits)
    scales = np.empty((len(hidden), hidden.shape[1] // GROUP), np.float32)
    quants = np.empty((len(hidden), ACTIVATION_BYTES, hidden.shape[1]), np.int8)
    output = np.full((len(hidden), len(packed) * LANES), np.nan, np.float32)
    compiled_coarse(bits)(
        new_counters(1), np.array(spans), packed, hidden, quants, scales, np.empty_like(scales), output
    )
    return output[:, : len(weights.quants)]


needs_coarse = pytest.mark.skipif(not CAN_BE_COARSE, reason="this processor multiplies activations as 16 bits")


@needs_coarse
@pytest.mark.parametrize("num_out", [70, 40])
@both_widths
def test_a_coarse_row_multiplies_its_upper_byte_with_what_weights_differ_from_the_middle(generator, num_out, bits):
    weights, hidden = quantise(normal(generator, num_out, 6 * GROUP), bits), normal(generator, 32, 6 * GROUP)
    output = multiply_coarsely(weights, hidden, [[0, 32, 0]], bits)
    d, q, m = split(weights)
    by_group = hidden.reshape(32, 1, 6, GROUP).astype(np.float64)
    scales = np.abs(by_group).max(axis=3, keepdims=True) / (127 * STEPS)
    whole = np.rint(by_group / scales)
    coarse = np.floor((whole + STEPS / 2) / STEPS)
    middle = middle_of(bits)
    expected = (d * STEPS * scales * (q - middle) * coarse + (m + middle * d) * scales * whole).sum(axis=(2, 3))
    np.testing.assert_allclose(output, expected, rtol=1e-4, atol=2e-3)


@needs_coarse
def test_coarse_rows_are_off_by_what_one_byte_of_activations_alone_is(generator):
    weights, hidden = quantise(normal(generator, 64, 18 * GROUP), 4), normal(generator, 64, 18 * GROUP)
    expected = hidden.astype(np.float64) @ weights.dense().T.astype(np.float64)
    error = np.abs(multiply_coarsely(weights, hidden, [[0, 64, 0]]) - expected).mean()
    scales = np.abs(hidden).reshape(64, -1, GROUP).max(axis=2, keepdims=True) / 127
    byte_alone = (np.rint(hidden.reshape(64, -1, GROUP) / scales) * scales).reshape(64, -1)
    np.testing.assert_allclose(error, np.abs(byte_alone @ weights.dense().T - expected).mean(), rtol=0.1)


@needs_coarse
def test_exact_rows_beside_coarse_ones_are_what_they_are_alone(generator):
    weights, hidden = quantise(normal(generator, 50, 3 * GROUP), 4), normal(generator, 30, 3 * GROUP)
    output = multiply_coarsely(weights, hidden, [[0, 16, 5], [21, 0, 9]])
    np.testing.assert_array_equal(output[16:], compiled_multiply(4)(weights, hidden[16:]))
    np.testing.assert_array_equal(output[:16], multiply_coarsely(weights, hidden[:16], [[0, 16, 0]]))
    assert not np.isnan(output).any()


@needs_coarse
def test_nan_and_infinity_in_a_coarse_row_show_there_and_nowhere_else(generator):
    weights, hidden = quantise(normal(generator, 20, 2 * GROUP), 4), normal(generator, 8, 2 * GROUP)
    expected = multiply_coarsely(weights, hidden, [[0, 8, 0]])
    hidden[2, 5], hidden[4, 40] = np.nan, np.inf
    output = multiply_coarsely(weights, hidden, [[0, 8, 0]])
    assert not np.isfinite(output[[2, 4]]).any()
    np.testing.assert_array_equal(np.delete(output, [2, 4], axis=0), np.delete(expected, [2, 4], axis=0))
