"""Rotation and write in one: what it leaves equals rope and then write_kv, and no other byte changes."""

import pytest
import torch

from paged_chat.kernels import reference

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
POSITIONS = torch.tensor([0, 49, 7])
SLOTS = torch.tensor([3 * 16 + 15, 1 * 16, 2 * 16 + 7])


def tables(rotated):
    angles = torch.outer(torch.arange(50.0), 100.0 ** -torch.linspace(0, 1, rotated // 2))
    return angles.cos(), angles.sin()


def read_back(backend, caches, query, window):
    """Attention of each slot over itself alone gives its value; over its whole block, what its key weighs too."""
    block_tables = (SLOTS // 16).int()[:, None]
    lens = (SLOTS % 16 + 1).int()
    return backend.attention_decode(query, *caches, block_tables, lens, 0.125, window)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("head_dim", "rotated", "num_heads"), [(64, 64, 6), (80, 80, 2), (64, 32, 10), (96, 96, 4), (128, 128, 2)]
)
def test_it_equals_rope_and_then_write_kv(backend, allocate_for, random, close, dtype, head_dim, rotated, num_heads):
    fused = random(3, num_heads + 4, head_dim, dtype=dtype)  # query heads, 2 of keys, 2 of values
    older_keys, older_values = random(2, 64, 2, head_dim, dtype=dtype)
    results = []
    for kernels in (backend, reference):
        _, key_cache, value_cache = allocate_for(kernels, 4, 2, 16, head_dim, dtype)
        # The tokens before the new ones in their blocks, so that attention over a block compares keys by their weight.
        kernels.write_kv(older_keys, older_values, key_cache, value_cache, torch.arange(64))
        mine = fused.clone()
        query, key, value = mine[:, :num_heads], mine[:, num_heads : num_heads + 2], mine[:, num_heads + 2 :]
        kernels.rope_write_kv(query, key, value, POSITIONS, *tables(rotated), key_cache, value_cache, SLOTS)
        assert value.equal(fused[:, num_heads + 2 :])
        alone = read_back(kernels, (key_cache, value_cache), query, window=1)
        beside = read_back(kernels, (key_cache, value_cache), query, window=None)
        results.append((query, alone, beside))
    for actual, expected in zip(*results, strict=True):
        close(actual, expected)
    assert results[0][1].equal(fused[:, num_heads + 2 :].repeat_interleave(num_heads // 2, dim=1))
    assert results[0][0][..., rotated:].equal(fused[:, :num_heads, rotated:])


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_rotated_key_lands_whole_in_its_block_and_nothing_else_changes(backend, caches, random, close, dtype):
    pool, key_cache, value_cache = caches(num_blocks=4, dtype=dtype)
    query, key, value = random(3, 4, 64, dtype=dtype), random(3, 2, 64, dtype=dtype), random(3, 2, 64, dtype=dtype)
    turned = key.clone()
    reference.rope(query.clone(), turned, POSITIONS, *tables(64))
    backend.rope_write_kv(query, key, value, POSITIONS, *tables(64), key_cache, value_cache, SLOTS)
    # Where inside the block is the backend's affair: compare as sets.
    for cache, new in ((key_cache, turned), (value_cache, value)):
        for token, block_id in enumerate((SLOTS // 16).tolist()):
            written = cache[block_id][~cache[block_id].isnan()]
            close(written.sort().values, new[token].flatten().sort().values)
    assert (~pool.isnan()).sum() == 3 * 2 * (2 * 64)


def test_padding_goes_to_the_null_block_and_the_last_block_stays_byte_for_byte(backend, caches, random):
    """E13."""
    pool, key_cache, value_cache = caches(num_blocks=4)
    backend.write_kv(*random(2, 16, 2, 64, dtype=torch.bfloat16), key_cache, value_cache, 3 * 16 + torch.arange(16))
    before = pool.view(torch.uint8).clone()
    query, (key, value) = random(3, 4, 64, dtype=torch.bfloat16), random(2, 3, 2, 64, dtype=torch.bfloat16)
    slots = torch.tensor([2 * 16 + 1, 0, 0])
    backend.rope_write_kv(query, key, value, torch.tensor([17, 0, 0]), *tables(64), key_cache, value_cache, slots)
    after = pool.view(torch.uint8)
    assert [after[block_id].equal(before[block_id]) for block_id in range(4)] == [False, True, False, True]
    assert (~pool[0].isnan()).sum() == 2 * (2 * 64), "one slot of it"


def test_no_tokens(backend, caches, random):
    pool, key_cache, value_cache = caches(num_blocks=2)
    none = torch.empty(0, dtype=torch.int64)
    query, key = random(0, 4, 64, dtype=torch.bfloat16), random(0, 2, 64, dtype=torch.bfloat16)
    backend.rope_write_kv(query, key, key.clone(), none, *tables(64), key_cache, value_cache, none)
    assert pool.isnan().all()
