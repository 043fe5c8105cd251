"""Products of matrix tiles: those of the dense weights, in a fixed order, and written where they belong only."""

from functools import cache

import numpy as np
import pytest
import torch

from paged_chat.kernels.cpu import amx
from paged_chat.kernels.cpu.amx import COLUMNS, ROWS
from paged_chat.kernels.cpu.amx_layout import tiles_for
from paged_chat.kernels.cpu.amx_linear import add_linear, count_blocks, gated_linear
from paged_chat.kernels.cpu.grouped_weights import pack, quantise
from paged_chat.kernels.cpu.simd import LANES, compiled
from paged_chat.kernels.cpu.work_sharing import new_counters
from tile_products import (
    NO_BIAS,
    NUM_COLUMNS,
    TOLERANCES,
    both_kinds,
    dense_product,
    needs_tiles,
    normal,
    store_rows,
    strip_scratch,
    team,
    worst_error,
)

pytestmark = needs_tiles

NUM_ROWS = [1, 15, 16, 17, 33, 80]

all_kinds = pytest.mark.parametrize(("bits", "terms"), [(4, 1), (4, 3), (8, 1), (8, 3)])


@pytest.fixture
def generator():
    return np.random.default_rng(5)


# Products added to the residual sum


@cache
def compile_add(bits, terms):
    @compiled()
    def step(counters, shapes, hidden, packed, bias, num_blocks, first_group, activations, total):
        amx.configure(np.uint64(shapes.ctypes.data))
        scratch = strip_scratch(terms, packed, 1)
        store_rows(terms, counters, hidden, activations)
        add_linear(terms, bits, counters, 1, num_blocks, packed, bias, np.uint64(activations.ctypes.data), first_group,
                   hidden.shape[0], scratch, total)  # fmt: skip
        amx.release()

    return step


@pytest.fixture
def add(bits, terms):
    """`add(weights, hidden, total)` gives total + hidden · weightsᵀ."""

    def compute(weights, hidden, total, bias=NO_BIAS, num_blocks=1, first_group=0, num_threads=1):
        hidden, total = np.ascontiguousarray(hidden), total.copy()
        team(num_threads).run(
            compile_add(bits, terms),
            new_counters(2),
            amx.tile_shapes(),
            hidden,
            pack(weights, bits),
            bias,
            num_blocks,
            first_group,
            tiles_for(*hidden.shape, terms),
            total,
        )
        return total

    return compute


def padded(num_rows):
    return -(-num_rows // ROWS) * ROWS


@all_kinds
def test_sums_are_those_of_the_dense_weights(generator, add, bits, terms):
    weights = quantise(normal(generator, 4 * LANES, NUM_COLUMNS), bits)
    bias = normal(generator, 4 * LANES)
    for num_rows in NUM_ROWS:
        hidden, total = normal(generator, num_rows, NUM_COLUMNS), normal(generator, padded(num_rows), 4 * LANES)
        for chosen, num_blocks in ((NO_BIAS, 1), (bias, max(1, num_rows // 32))):
            found = add(weights, hidden, total, chosen, num_blocks)
            expected = total[:num_rows] + dense_product(weights, hidden, chosen)
            assert worst_error(found[:num_rows], expected) < TOLERANCES[terms]
            np.testing.assert_array_equal(found[num_rows:], total[num_rows:])


@both_kinds
def test_a_row_is_the_same_to_the_bit_in_any_batch_of_any_blocks_by_any_threads(generator, add, bits):
    weights = quantise(normal(generator, 6 * LANES, NUM_COLUMNS), bits)
    hidden, total = normal(generator, 80, NUM_COLUMNS), normal(generator, 80, 6 * LANES)
    together = add(weights, hidden, total)
    for row in (0, 15, 16, 41, 79):
        np.testing.assert_array_equal(
            add(weights, hidden[row : row + 1], np.resize(total[row], (ROWS, 6 * LANES)))[0], together[row]
        )
    for start, stop in [(0, 17), (5, 38), (33, 80)]:
        part = np.zeros((padded(stop - start), 6 * LANES), np.float32)
        part[: stop - start] = total[start:stop]
        np.testing.assert_array_equal(add(weights, hidden[start:stop], part)[: stop - start], together[start:stop])
    for num_blocks in (2, 3, 5):
        np.testing.assert_array_equal(add(weights, hidden, total, NO_BIAS, num_blocks), together)
    for _ in range(10):
        np.testing.assert_array_equal(add(weights, hidden, total, NO_BIAS, 2, num_threads=3), together)


@both_kinds
@pytest.mark.parametrize("num_blocks", [1, 3])
def test_rows_before_the_first_that_counts_stay_as_they_are(generator, add, bits, num_blocks):
    weights = quantise(normal(generator, 2 * LANES, NUM_COLUMNS), bits)
    hidden, total = normal(generator, 70, NUM_COLUMNS), normal(generator, 80, 2 * LANES)
    bias = normal(generator, 2 * LANES)
    whole = add(weights, hidden, total, bias)
    for first_group in (1, 3, 4):
        part = add(weights, hidden, total, bias, num_blocks, first_group)
        first_row = ROWS * first_group
        np.testing.assert_array_equal(part[:first_row], total[:first_row])
        np.testing.assert_array_equal(part[first_row:], whole[first_row:])


@both_kinds
def test_nan_in_a_row_shows_in_that_row_only(generator, add, bits):
    weights = quantise(normal(generator, 2 * LANES, NUM_COLUMNS), bits)
    hidden, total = normal(generator, 33, NUM_COLUMNS), np.zeros((48, 2 * LANES), np.float32)
    expected = add(weights, hidden, total)
    hidden[4, 40], hidden[32, 0] = np.nan, np.inf
    found = add(weights, hidden, total)
    assert np.isnan(found[4]).all()
    assert not np.isfinite(found[32]).any()
    others = [row for row in range(48) if row not in (4, 32)]
    np.testing.assert_array_equal(found[others], expected[others])


@both_kinds
def test_many_columns_are_added_in_chunks_that_change_no_bit(generator, add, bits, terms):
    """Of 8 tiles of rows and more; fewer are added in one go."""
    weights = quantise(normal(generator, 2 * LANES, 48 * COLUMNS), bits)
    hidden, total = normal(generator, 130, 48 * COLUMNS), normal(generator, 144, 2 * LANES)
    together = add(weights, hidden, total)
    assert worst_error(together[:130], total[:130] + dense_product(weights, hidden)) < TOLERANCES[terms]
    np.testing.assert_array_equal(add(weights, hidden, total, num_blocks=2), together)


def test_blocks_of_rows_fit_a_cores_cache_and_give_every_thread_work():
    kibi = 1024
    assert [count_blocks(rows, 576, 960, 1, 2) for rows in (1, 16, 49, 560, 561, 1073)] == [1, 1, 1, 1, 2, 2]
    assert count_blocks(1073, 576, 960, 3, 2) == 4  # two parts of each number
    assert count_blocks(1073, 1536, 576, 1, 2) == 6
    assert count_blocks(10**6, 576, 960, 1, 2) * 640 * kibi >= 10**6 * 576 * 2
    # Few outputs: 4 items for each of 16 threads, but never less than two tiles of rows in a block.
    assert count_blocks(1073, 576, 576, 1, 16) == 4
    assert count_blocks(64, 576, 32, 1, 16) == 2


# Gate and up


@cache
def compile_gated(bits, terms):
    @compiled()
    def step(counters, shapes, hidden, packed, bias, num_blocks, first_group, activations, gated):
        amx.configure(np.uint64(shapes.ctypes.data))
        scratch = strip_scratch(terms, packed, 1)
        strips = amx.aligned_floats(8 * ROWS * ROWS)
        store_rows(terms, counters, hidden, activations)
        gated_linear(terms, bits, counters, 1, num_blocks, packed, bias, np.uint64(activations.ctypes.data),
                     first_group, hidden.shape[0], scratch, strips, np.uint64(gated.ctypes.data))  # fmt: skip
        amx.release()

    return step


def from_tiles(tiles, num_columns, terms):  # → [rows padded to 16, columns] float32
    """What activations stand for: the parts of a number added up."""
    shape = (-1, num_columns // COLUMNS, amx.parts(terms), ROWS, COLUMNS)
    rows = torch.from_numpy(tiles).view(torch.bfloat16).view(shape).float().sum(2)
    return rows.transpose(1, 2).reshape(-1, num_columns).numpy()


@pytest.fixture
def gate(bits, terms):
    """`gate(weights, hidden)` gives SiLU(gates) · ups, rows padded to 16."""

    def compute(weights, hidden, bias=NO_BIAS, num_blocks=1, first_group=0, num_threads=1):
        inner = len(weights.quants) // 2
        gated = tiles_for(len(hidden), inner, terms)
        team(num_threads).run(
            compile_gated(bits, terms),
            new_counters(2),
            amx.tile_shapes(),
            np.ascontiguousarray(hidden),
            pack(weights, bits),
            bias,
            num_blocks,
            first_group,
            tiles_for(*hidden.shape, terms),
            gated,
        )
        return from_tiles(gated, inner, terms)

    return compute


@both_kinds
def test_gated_products_are_those_of_the_dense_weights(generator, gate, bits, terms):
    inner = 2 * COLUMNS
    weights = quantise(0.3 * normal(generator, 2 * inner, NUM_COLUMNS), bits)
    bias = normal(generator, 2 * inner)
    for num_rows in NUM_ROWS:
        hidden = normal(generator, num_rows, NUM_COLUMNS)
        for chosen, num_blocks in ((NO_BIAS, 1), (bias, max(1, num_rows // 32))):
            gates, ups = np.split(dense_product(weights, hidden, chosen), 2, axis=1)
            found = gate(weights, hidden, chosen, num_blocks)
            assert worst_error(found[:num_rows], gates / (1 + np.exp(-gates)) * ups) < TOLERANCES[terms]


@both_kinds
def test_a_gated_row_is_the_same_to_the_bit_in_any_batch_of_any_blocks_by_any_threads(generator, gate, bits):
    weights = quantise(normal(generator, 4 * COLUMNS, NUM_COLUMNS), bits)
    hidden = normal(generator, 80, NUM_COLUMNS)
    together = gate(weights, hidden)
    for start, stop in [(41, 42), (5, 38), (33, 80)]:
        np.testing.assert_array_equal(gate(weights, hidden[start:stop])[: stop - start], together[start:stop])
    for num_blocks in (2, 5):
        np.testing.assert_array_equal(gate(weights, hidden, NO_BIAS, num_blocks, num_threads=3), together)
    part = gate(weights, hidden, NO_BIAS, 2, first_group=3)
    np.testing.assert_array_equal(part[48:], together[48:])
    assert not part[:48].any()


@both_kinds
def test_rows_gated_beside_the_next_product_are_those_gated_after_it(generator, gate, bits, terms):
    """Beside it they are from 16 groups of columns on, in whole pairs of tiles of rows."""
    inner = 3 * COLUMNS
    weights = quantise(0.1 * normal(generator, 2 * inner, 18 * COLUMNS), bits)
    hidden = normal(generator, 112, 18 * COLUMNS)
    together = gate(weights, hidden)
    gates, ups = np.split(dense_product(weights, hidden), 2, axis=1)
    assert worst_error(together, gates / (1 + np.exp(-gates)) * ups) < 2 * TOLERANCES[terms]
    for row in (0, 15, 16, 63, 96, 111):
        np.testing.assert_array_equal(gate(weights, hidden[row : row + 1])[0], together[row])
    np.testing.assert_array_equal(gate(weights, hidden, NO_BIAS, 3, num_threads=3), together)


@pytest.mark.parametrize(("bits", "terms"), [(8, 3)])
def test_gates_far_from_zero_let_all_through_or_nothing(gate):
    """exp(-x) would overflow; a NaN stays one."""
    dense = np.zeros((2 * COLUMNS, COLUMNS), np.float32)
    dense[:COLUMNS] = np.diag(np.full(COLUMNS, 127.0))  # each column's own gate
    dense[COLUMNS:, :] = np.diag(np.full(COLUMNS, 127.0))
    weights = quantise(dense, 8)
    hidden = np.zeros((2, COLUMNS), np.float32)
    hidden[0, :4] = -1.0, 1.0, 8.0, -8.0
    hidden[1, 5] = np.nan
    found = gate(weights, hidden)
    np.testing.assert_allclose(found[0, :4], [0.0, 127.0**2, 1016.0**2, 0.0], rtol=1e-4, atol=1e-30)
    assert np.isnan(found[1]).all()
