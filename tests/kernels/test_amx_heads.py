"""Queries, keys and values by matrix tiles: projected, normed, rotated, and put where attention looks for them."""

from functools import cache

import numpy as np
import pytest
import torch

from paged_chat.kernels import choose_backend, reference
from paged_chat.kernels.cpu import amx
from paged_chat.kernels.cpu.amx import COLUMNS, ROWS
from paged_chat.kernels.cpu.amx_heads import project_heads, scratch_rows
from paged_chat.kernels.cpu.amx_layout import tiles_for
from paged_chat.kernels.cpu.arrays import address, stride_bytes
from paged_chat.kernels.cpu.grouped_weights import pack, quantise
from paged_chat.kernels.cpu.simd import BFLOAT16, compiled
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

NAN = float("nan")
HEAD_DIM = 64
NUM_HEADS, NUM_KV_HEADS = 3, 2
NUM_BLOCKS = 9


@pytest.fixture
def generator():
    return np.random.default_rng(6)


@cache
def compile_heads(bits, terms):
    @compiled()
    def step(
        counters, shapes, hidden, packed, bias, num_blocks, activations, query_norm, key_norm, has_rope, cos, sin,
        positions, slots, num_decodes, keys, values, block_stride, decode_queries, queries, query_rows
    ):  # fmt: skip
        amx.configure(np.uint64(shapes.ctypes.data))
        scratch = strip_scratch(terms, packed, HEAD_DIM // COLUMNS)
        heads = amx.aligned_floats(scratch_rows(hidden.shape[0], num_blocks) * HEAD_DIM)
        store_rows(terms, counters, hidden, activations)
        project_heads(HEAD_DIM, terms, bits, BFLOAT16, counters, 1, num_blocks, packed, bias,
                      np.uint64(activations.ctypes.data), 0, hidden.shape[0], NUM_HEADS, NUM_KV_HEADS, query_norm,
                      key_norm, np.float32(1e-5), has_rope, cos, sin, positions, slots, num_decodes, np.float32(0.5),
                      np.float32(0.25), keys, values, block_stride, scratch, heads, decode_queries,
                      np.uint64(queries.ctypes.data), query_rows)  # fmt: skip
        amx.release()

    return step


class Heads:
    """What `project_heads` leaves of some rows: 0.5 · queries of those that decode, 0.25 · those of others."""

    def __init__(self, bits, terms, weights, hidden, slots, positions, *, norms=(NO_BIAS, NO_BIAS), bias=NO_BIAS,
                 has_rope=True, num_decodes=0, num_blocks=1, num_threads=1):  # fmt: skip
        num_rows = len(hidden)
        cpu = choose_backend("cpu", torch.device("cpu"))
        key_shape, value_shape = cpu.kv_block_shapes(NUM_KV_HEADS, 16, HEAD_DIM)
        self.pool = torch.full((NUM_BLOCKS, 2, NUM_KV_HEADS * HEAD_DIM * 16), NAN, dtype=torch.bfloat16)
        keys, values = self.pool[:, 0].view(-1, *key_shape), self.pool[:, 1].view(-1, *value_shape)
        decode_queries = np.full((num_decodes, NUM_HEADS * HEAD_DIM), np.nan, np.float32)
        query_rows = num_rows + ROWS
        queries = torch.full((NUM_HEADS, amx.parts(terms), query_rows, HEAD_DIM), NAN, dtype=torch.bfloat16)
        cos, sin = rope_tables()
        team(num_threads).run(
            compile_heads(bits, terms),
            new_counters(2),
            amx.tile_shapes(),
            np.ascontiguousarray(hidden),
            pack(weights, bits),
            bias,
            num_blocks,
            tiles_for(*hidden.shape, terms),
            *norms,
            has_rope,
            cos.numpy(),
            sin.numpy(),
            positions,
            slots,
            num_decodes,
            address(keys),
            address(values),
            stride_bytes(keys, 0),
            decode_queries,
            queries.view(torch.uint8).numpy(),
            query_rows,
        )
        self.decode_queries = torch.from_numpy(decode_queries).view(num_decodes, NUM_HEADS, HEAD_DIM)
        self.queries = queries.float().sum(1).transpose(0, 1)  # [query_rows, H, D]
        self.keys = keys[slots // 16, :, :, slots % 16].float()  # [M, K, D]
        self.values = values[slots // 16, :, slots % 16].float()
        self.used = torch.zeros(NUM_BLOCKS * 16, dtype=torch.bool)
        self.used[slots] = True
        self.slots_of_keys = keys.permute(0, 3, 1, 2).flatten(0, 1)  # [all slots, K, D]
        self.slots_of_values = values.transpose(1, 2).flatten(0, 1)


def rope_tables():
    angles = torch.arange(200)[:, None] / 10000 ** (torch.arange(HEAD_DIM // 2) / (HEAD_DIM // 2))
    return angles.cos(), angles.sin()


def expected_heads(weights, hidden, positions, norms, bias, has_rope):
    """Queries [M, H, D], keys and values [M, K, D] in plain torch."""
    projected = torch.from_numpy(dense_product(weights, hidden, bias).astype(np.float32)).view(
        len(hidden), -1, HEAD_DIM
    )
    query, key, value = projected.split([NUM_HEADS, NUM_KV_HEADS, NUM_KV_HEADS], dim=1)
    if len(norms[0]):
        query = reference.rms_norm(query, torch.from_numpy(norms[0]), 1e-5)[0]
        key = reference.rms_norm(key, torch.from_numpy(norms[1]), 1e-5)[0]
    query, key = query.clone(), key.clone()
    if has_rope:
        reference.rope(query, key, torch.from_numpy(positions), *rope_tables())
    return query, key, value


def qkv_weights(generator, bits):
    return quantise(normal(generator, (NUM_HEADS + 2 * NUM_KV_HEADS) * HEAD_DIM, NUM_COLUMNS), bits)


def rows_of(generator, num_rows):
    """Hidden rows, and where they stand: scattered slots, positions of their own."""
    slots = generator.permutation(NUM_BLOCKS * 16)[:num_rows]
    return normal(generator, num_rows, NUM_COLUMNS), slots, generator.integers(0, 200, num_rows)


@both_kinds
@pytest.mark.parametrize("kind", ["plain", "bias", "norm", "bias and norm, no rope"])
@pytest.mark.parametrize(("num_rows", "num_decodes", "num_blocks"), [(1, 0, 1), (17, 17, 1), (33, 5, 1), (80, 20, 2)])
def test_heads_are_finished_and_put_in_their_places(generator, bits, terms, kind, num_rows, num_decodes, num_blocks):
    weights, (hidden, slots, positions) = qkv_weights(generator, bits), rows_of(generator, num_rows)
    norms = (1 + 0.1 * normal(generator, HEAD_DIM), 1 + 0.1 * normal(generator, HEAD_DIM))
    options = {
        "norms": norms if "norm" in kind else (NO_BIAS, NO_BIAS),
        "bias": normal(generator, len(weights.quants)) if "bias" in kind else NO_BIAS,
        "has_rope": "no rope" not in kind,
    }
    heads = Heads(
        bits, terms, weights, hidden, slots, positions, num_decodes=num_decodes, num_blocks=num_blocks, **options
    )
    query, key, value = expected_heads(weights, hidden, positions, **options)
    if num_decodes:
        assert worst_error(heads.decode_queries, 0.5 * query[:num_decodes]) < TOLERANCES[terms]
    if num_decodes < num_rows:
        assert worst_error(heads.queries[num_decodes:num_rows], 0.25 * query[num_decodes:]) < TOLERANCES[terms]
    # Keys and values are rounded to bfloat16 once more.
    assert worst_error(heads.keys, key) < TOLERANCES[1]
    assert worst_error(heads.values, value) < TOLERANCES[1]
    # Nothing else was touched.
    assert heads.queries[:num_decodes].isnan().all()
    assert heads.queries[num_rows:].isnan().all()
    assert heads.slots_of_keys[~heads.used].isnan().all()
    assert heads.slots_of_values[~heads.used].isnan().all()


@both_kinds
def test_a_rows_heads_are_the_same_to_the_bit_in_any_batch(generator, bits, terms):
    weights, (hidden, slots, positions) = qkv_weights(generator, bits), rows_of(generator, 80)
    together = Heads(bits, terms, weights, hidden, slots, positions, num_blocks=2, num_threads=3)
    for start, stop in [(41, 42), (5, 38), (33, 80)]:
        here = slice(start, stop)
        alone = Heads(bits, terms, weights, hidden[here], slots[here], positions[here])
        assert alone.queries[: stop - start].equal(together.queries[here])
        assert alone.keys.equal(together.keys[here])
        assert alone.values.equal(together.values[here])
