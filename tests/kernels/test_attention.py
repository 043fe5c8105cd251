"""Attention of the fast backends against the reference. Every unused slot of every pool holds NaN (E21)."""

import pytest
import torch

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
CONTEXT_LENS = [1, 15, 16, 17, 31, 32, 33, 100]
HEAD_SIZES_AND_GROUPS = [(64, 3), (80, 7), (96, 1), (128, 9), (256, 16)]


@pytest.mark.parametrize("dtype", DTYPES)
def test_decode_of_odd_contexts_together(paged, random, close, dtype):
    fast, truth = paged(CONTEXT_LENS, dtype=dtype)
    query = random(8, 6, 64, dtype=dtype)
    close(fast.decode(query), truth.decode(query))


@pytest.mark.parametrize(("head_dim", "group_size"), HEAD_SIZES_AND_GROUPS)
def test_decode_of_each_head_size_and_group(paged, random, close, head_dim, group_size):
    fast, truth = paged([33, 5], head_dim=head_dim)
    query = random(2, 2 * group_size, head_dim)
    close(fast.decode(query), truth.decode(query))


@pytest.mark.parametrize("window", [1, 16, 17, 40, 1000])
def test_decode_sees_only_its_window(paged, random, close, window):
    fast, truth = paged([1, 33, 100], num_kv_heads=1)
    query = random(3, 3, 64)
    close(fast.decode(query, window=window), truth.decode(query, window=window))


@pytest.mark.parametrize("window", [None, 300])
def test_decode_over_a_context_of_several_splits(paged, random, close, window):
    fast, truth = paged([256, 257, 700, 3], num_kv_heads=1)
    query = random(4, 3, 64)
    close(fast.decode(query, window=window), truth.decode(query, window=window))


@pytest.mark.parametrize("block_size", [8, 24, 32])
def test_blocks_of_other_sizes(paged, random, close, block_size):
    fast, truth = paged([23, 24, 25, 64], block_size=block_size, num_kv_heads=1)
    query = random(4, 2, 64)
    close(fast.decode(query), truth.decode(query))
    query = random(23 + 1 + 9 + 2, 2, 64)
    close(fast.prefill(query, [23, 1, 9, 2]), truth.prefill(query, [23, 1, 9, 2]))


def test_a_padded_row_is_zero_and_disturbs_nobody(paged, random, close):
    fast, truth = paged([0, 40, 0])
    query = random(3, 4, 64)
    output = fast.decode(query)
    assert output[0].count_nonzero() == 0
    assert output[2].count_nonzero() == 0
    close(output, truth.decode(query))


def test_queries_that_are_a_slice_of_something_wider(paged, random, close):
    fast, truth = paged([20, 33])
    query = random(2, 10, 64)[:, :6]
    close(fast.decode(query), truth.decode(query))
    query = random(7, 10, 64)[:, 2:8]
    close(fast.prefill(query, [2, 5]), truth.prefill(query, [2, 5]))


def test_a_triton_row_is_the_same_alone_and_in_a_batch(interpreted_triton, page_for, random):
    together = page_for(interpreted_triton, [300, 5, 31])
    query = random(3, 6, 64)
    batched = together.decode(query)
    for row in range(3):
        alone = together.backend.attention_decode(
            query[row : row + 1],
            together.key_cache,
            together.value_cache,
            together.block_tables[row : row + 1],
            together.context_lens[row : row + 1],
            0.125,
            None,
        )
        assert alone[0].equal(batched[row])


@pytest.mark.parametrize("dtype", DTYPES)
def test_prefill_of_ragged_queries_over_odd_contexts(paged, random, close, dtype):
    fast, truth = paged([*CONTEXT_LENS, 0], dtype=dtype)
    query_lens = [1, 15, 3, 17, 1, 32, 10, 40, 0]  # whole prompts, single tokens, chunks of a longer one
    query = random(sum(query_lens), 6, 64, dtype=dtype)
    close(fast.prefill(query, query_lens), truth.prefill(query, query_lens))


@pytest.mark.parametrize(("head_dim", "group_size"), HEAD_SIZES_AND_GROUPS)
def test_prefill_of_each_head_size_and_group(paged, random, close, head_dim, group_size):
    fast, truth = paged([33, 20], head_dim=head_dim)
    query = random(33 + 3, 2 * group_size, head_dim)
    close(fast.prefill(query, [33, 3]), truth.prefill(query, [33, 3]))


@pytest.mark.parametrize("window", [1, 16, 17, 40, 1000])
def test_prefill_sees_only_its_window(paged, random, close, window):
    fast, truth = paged([1, 33, 100], num_kv_heads=1)
    query = random(1 + 33 + 50, 3, 64)
    close(fast.prefill(query, [1, 33, 50], window=window), truth.prefill(query, [1, 33, 50], window=window))


@pytest.mark.parametrize("window", [None, 70])
@pytest.mark.parametrize("query_lens", [[300, 300], [300, 150]])
def test_prefill_of_more_queries_than_one_tile(paged, random, close, query_lens, window):
    fast, truth = paged([300, 310], num_kv_heads=1)
    query = random(sum(query_lens), 2, 64)
    close(fast.prefill(query, query_lens, window=window), truth.prefill(query, query_lens, window=window))


def test_a_prompt_in_chunks_equals_the_whole(paged, random, close):
    fast, _ = paged([100], num_kv_heads=1)
    query = random(100, 3, 64)
    whole = fast.prefill(query, [100])
    # The last 37 positions again as a chunk of their own, over the same context.
    close(fast.prefill(query[63:], [37]), whole[63:])
    close(fast.decode(query[99:]), whole[99:])
