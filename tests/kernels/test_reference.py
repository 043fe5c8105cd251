"""The truth itself, against dense torch attention and formulas written out."""

import pytest
import torch
from torch.nn import functional

from paged_chat.kernels import reference

BLOCK_SIZE = 16


def dense_in_blocks(key, value):
    """One sequence's [L, K, D] in blocks 2, 1, 4, 3, ... of a pool that is NaN elsewhere, with its block table."""
    length, num_kv_heads, head_dim = key.shape
    num_blocks = -(-length // BLOCK_SIZE)
    table = [block_id ^ 1 for block_id in range(2, 2 + num_blocks)]
    caches = [torch.full((num_blocks + 3, num_kv_heads, BLOCK_SIZE, head_dim), float("nan")) for _ in range(2)]
    for position in range(length):
        block_id, offset = table[position // BLOCK_SIZE], position % BLOCK_SIZE
        caches[0][block_id, :, offset] = key[position]
        caches[1][block_id, :, offset] = value[position]
    return *caches, torch.tensor([table], dtype=torch.int32)


@pytest.mark.parametrize("context_len", [1, 15, 16, 17, 31, 32, 33, 100])
@pytest.mark.parametrize("window", [None, 1, 20])
def test_attention_equals_dense_attention_with_nan_in_every_unused_slot(random, context_len, window):
    num_queries = (context_len + 1) // 2
    query, key, value = random(num_queries, 6, 64), random(context_len, 2, 64), random(context_len, 2, 64)
    key_cache, value_cache, table = dense_in_blocks(key, value)

    visible = torch.ones(context_len, context_len, dtype=torch.bool).tril()
    if window is not None:
        visible &= ~torch.ones(context_len, context_len, dtype=torch.bool).tril(-window)
    dense = functional.scaled_dot_product_attention(
        query.transpose(0, 1),
        key.transpose(0, 1),
        value.transpose(0, 1),
        attn_mask=visible[-num_queries:],
        scale=0.3,
        enable_gqa=True,
    ).transpose(0, 1)

    lens = torch.tensor([context_len], dtype=torch.int32)
    cu_seqlens_q = torch.tensor([0, num_queries], dtype=torch.int32)
    prefill = reference.attention_prefill(
        query, key_cache, value_cache, table, lens, cu_seqlens_q, num_queries, 0.3, window
    )
    decode = reference.attention_decode(query[-1:], key_cache, value_cache, table, lens, 0.3, window)
    torch.testing.assert_close(prefill, dense, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(decode, dense[-1:], rtol=1e-5, atol=1e-5)


def test_written_keys_and_values_lie_in_their_slots():
    key_cache, value_cache = torch.zeros(4, 2, 16, 8), torch.zeros(4, 2, 16, 8)
    key = torch.arange(32.0).view(2, 2, 8)
    reference.write_kv(key, -key, key_cache, value_cache, torch.tensor([3 * 16 + 15, 1 * 16]))
    assert key_cache[3, :, 15].equal(key[0])
    assert key_cache[1, :, 0].equal(key[1])
    assert value_cache[3, :, 15].equal(-key[0])
    assert key_cache.count_nonzero() == 31


def test_rope_turns_feature_i_with_feature_i_plus_half_by_the_angle_of_the_position():
    angle = torch.tensor([[0.0], [torch.pi / 2]])  # of positions 0 and 1
    query, key = torch.tensor([[[1.0, 2.0, 9.0]]]), torch.tensor([[[3.0, 4.0, 9.0]]])
    reference.rope(query, key, torch.tensor([1]), angle.cos(), angle.sin())
    torch.testing.assert_close(query, torch.tensor([[[-2.0, 1.0, 9.0]]]))
    torch.testing.assert_close(key, torch.tensor([[[-4.0, 3.0, 9.0]]]))


def test_rms_norm_returns_the_sum_beside_its_norm():
    hidden, residual = torch.tensor([[2.0, 3.0]]), torch.tensor([[1.0, 1.0]])
    normed, total = reference.rms_norm(hidden, torch.tensor([1.0, 10.0]), 0.0, residual)
    assert total.tolist() == [[3.0, 4.0]]
    torch.testing.assert_close(normed, torch.tensor([[3.0, 40.0]]) / 12.5**0.5)


def test_silu_mul_takes_the_gates_first():
    torch.testing.assert_close(reference.silu_mul(torch.tensor([[1.0, 0.0, 5.0, 7.0]])), torch.tensor([[3.65529, 0.0]]))
