"""Attention of prompts by vectors of bfloat16: near the reference, whoever computes it, whatever is beside."""

from functools import cache

import numpy as np
import pytest
import torch

from paged_chat.kernels import choose_backend, reference
from paged_chat.kernels.cpu import bfloat16
from paged_chat.kernels.cpu.arrays import address, stride_bytes
from paged_chat.kernels.cpu.prompt_attention import attend_prompts, plan_prompts, prompt_scratch
from paged_chat.kernels.cpu.prompt_products import STRETCH_TOKENS
from paged_chat.kernels.cpu.simd import compiled
from paged_chat.kernels.cpu.team import Team
from paged_chat.kernels.cpu.work_sharing import new_counters

needs_dots = pytest.mark.skipif(not bfloat16.has_dots(), reason="this processor adds up no products of bfloat16")
TOLERANCE = 8e-3  # of a row's size: queries and weights have 8 binary digits
# The last rows of contexts that end around the ends of blocks, of what is woven at once, and of stretches.
CONTEXT_LENS = [1, 2, 15, 16, 17, 63, 64, 65, 129, 300]
COUNTS = [1, 2, 7, 16, 17, 20, 64, 33, 100, 250]


@cache
def compile_attend(head_dim, group):
    @compiled()
    def attend(counters, chunks, num_kv_heads, query, keys, values, block_stride, tables, table_rows, lens, output):
        scratch = prompt_scratch(head_dim, group, True)
        attend_prompts(head_dim, counters, 0, chunks, group, num_kv_heads, query, keys, values, block_stride, tables,
                       table_rows, lens, scratch, output)  # fmt: skip

    return attend


def attend(contexts, query, counts, num_threads=1, chunks=None):
    """[T, H, D] of each sequence's last rows."""
    num_heads, head_dim = query.shape[1:]
    num_kv_heads = contexts.key_cache.shape[1]
    group = num_heads // num_kv_heads
    counts = np.array(counts)
    lens = np.concatenate(
        [
            np.arange(length - count, length) + 1
            for length, count in zip(contexts.context_lens.tolist(), counts, strict=True)
        ]
    ).astype(np.int64)
    output = np.full((len(query), num_heads * head_dim), np.nan, np.float32)
    Team(num_threads).run(
        compile_attend(head_dim, group),
        new_counters(1),
        plan_prompts(counts, 0, group, num_kv_heads, num_threads) if chunks is None else chunks,
        num_kv_heads,
        (query * head_dim**-0.5).reshape(len(query), -1).numpy(),
        address(contexts.key_cache),
        address(contexts.value_cache),
        stride_bytes(contexts.key_cache, 0),
        contexts.block_tables.numpy(),
        np.repeat(np.arange(len(counts)), counts),
        lens,
        output,
    )
    return torch.from_numpy(output).view(query.shape)


@pytest.fixture
def contexts(page_for):
    cpu = choose_backend("cpu", torch.device("cpu"))
    return lambda lens, **shape: page_for(cpu, lens, dtype=torch.bfloat16, **shape)


@pytest.fixture
def expected(page_for):
    def compute(query, lens, counts, **shape):
        truth = page_for(reference, lens, dtype=torch.bfloat16, **shape)
        rows = query.bfloat16()
        return truth.prefill(rows, counts, scale=query.shape[2] ** -0.5).float()

    return compute


def worst_error(rows, expected):
    """Of any row and head, as a share of that row's size."""
    assert not rows.isnan().any(), "NaN came through"
    return ((rows - expected).norm(dim=2) / expected.norm(dim=2)).max().item()


@needs_dots
@pytest.mark.parametrize(("num_heads", "num_kv_heads", "head_dim"), [(6, 2, 64), (2, 2, 32), (4, 1, 128), (3, 1, 80)])
def test_prompts_over_pools_full_of_nan_give_what_the_reference_gives(
    contexts, expected, random, num_heads, num_kv_heads, head_dim
):
    shape = {"num_kv_heads": num_kv_heads, "head_dim": head_dim}
    query = random(sum(COUNTS[:6]) + 64 + 33 + 100 + 250, num_heads, head_dim)
    lens = [max(length, count) for length, count in zip(CONTEXT_LENS, COUNTS, strict=True)]
    rows = attend(contexts(lens, **shape), query, COUNTS)
    assert worst_error(rows, expected(query, lens, COUNTS, **shape)) < TOLERANCE


@needs_dots
@pytest.mark.parametrize("length", [STRETCH_TOKENS - 1, STRETCH_TOKENS, STRETCH_TOKENS + 1, 2 * STRETCH_TOKENS + 37])
def test_contexts_of_several_stretches_are_merged(contexts, expected, random, length):
    query = random(90, 6, 64)
    assert worst_error(attend(contexts([length]), query, [90]), expected(query, [length], [90])) < TOLERANCE


@needs_dots
def test_threads_and_other_chunks_give_the_same_bits(contexts, random):
    contexts, query = contexts([500, 130]), random(230, 6, 64)
    whole = attend(contexts, query, [200, 30])
    assert attend(contexts, query, [200, 30], num_threads=3).equal(whole)
    by_row = np.stack([np.arange(230), np.ones(230, np.int64)], axis=1)
    assert attend(contexts, query, [200, 30], chunks=by_row).equal(whole)


@needs_dots
def test_nan_in_a_token_shows_in_the_rows_that_see_it(contexts, random):
    contexts, query = contexts([300]), random(60, 6, 64)
    expected = attend(contexts, query, [60])
    block_id = int(contexts.block_tables[0, 270 // 16])
    contexts.value_cache[block_id, 1, 270 % 16] = torch.nan
    spoilt = attend(contexts, query, [60])
    assert spoilt[30:, 3:].isnan().all()
    assert spoilt[:, :3].equal(expected[:, :3])  # the heads of the other value head


@needs_dots
def test_nan_in_a_query_shows_in_that_row_only(contexts, random):
    contexts, query = contexts([300]), random(60, 6, 64)
    expected = attend(contexts, query, [60])
    query[13, 2, 5] = torch.nan
    spoilt = attend(contexts, query, [60])
    assert spoilt[13, 2].isnan().all()
    spoilt[13, 2] = expected[13, 2]
    assert spoilt.equal(expected)


def test_a_prompt_is_cut_evenly_and_threads_share_the_chunks():
    assert plan_prompts(np.array([66]), 0, 3, 3, 2).tolist() == [[first, 11] for first in range(0, 66, 11)]
    assert plan_prompts(np.array([66]), 0, 3, 3, 1).tolist() == [[0, 13], [13, 13], [26, 13], [39, 13], [52, 14]]
    # 48 queries: 48 rows of heads that share no keys, one row of 64 that share them.
    assert plan_prompts(np.array([48, 2]), 7, 1, 4, 2).tolist() == [[7, 48], [55, 2]]
    assert plan_prompts(np.array([2]), 0, 64, 2, 2).tolist() == [[0, 1], [1, 1]]
    assert plan_prompts(np.array([], np.int64), 9, 3, 3, 2).shape == (0, 2)
