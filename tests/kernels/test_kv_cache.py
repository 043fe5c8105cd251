"""Writing new tokens and copying blocks: what must land where, and what must stay byte for byte."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

DTYPES = [torch.float32, torch.float16, torch.bfloat16]


def as_bytes(tensor):
    """NaN equals nothing, its bytes do."""
    return tensor.contiguous().view(torch.uint8).clone()


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_token_lands_whole_in_its_block_and_nothing_else_changes(backend, caches, random, dtype):
    pool, key_cache, value_cache = caches(num_blocks=4, dtype=dtype)
    key, value = random(2, 2, 64, dtype=dtype), random(2, 2, 64, dtype=dtype)
    backend.write_kv(key, value, key_cache, value_cache, torch.tensor([3 * 16 + 15, 1 * 16]))
    # Where inside the block is the backend's affair: compare as sets.
    for cache, new in ((key_cache, key), (value_cache, value)):
        for block_id, token in ((3, 0), (1, 1)):
            written = cache[block_id][~cache[block_id].isnan()]
            assert written.sort().values.equal(new[token].flatten().sort().values)
    assert (~pool.isnan()).sum() == 2 * 2 * (2 * 64)


def test_a_written_value_is_what_attention_reads_back(backend, caches, random):
    _, key_cache, value_cache = caches(num_blocks=4)
    key, value = random(20, 2, 64, dtype=torch.bfloat16), random(20, 2, 64, dtype=torch.bfloat16)
    slots = torch.cat([3 * 16 + torch.arange(16), 1 * 16 + torch.arange(4)])
    backend.write_kv(key, value, key_cache, value_cache, slots)
    query = random(1, 2, 64, dtype=torch.bfloat16)
    for context_len in (1, 16, 17, 20):
        tables, lens = torch.tensor([[3, 1]], dtype=torch.int32), torch.tensor([context_len], dtype=torch.int32)
        output = backend.attention_decode(query, key_cache, value_cache, tables, lens, 0.125, 1)
        assert output[0].equal(value[context_len - 1])


def test_keys_and_values_that_are_slices_of_a_fused_projection(backend, caches, random):
    pool, key_cache, value_cache = caches(num_blocks=3)
    _, key_of_slices, value_of_slices = caches(num_blocks=3)
    fused = random(5, 8, 64, dtype=torch.bfloat16)  # 4 query heads, 2 of keys, 2 of values
    slots = torch.arange(18, 23)
    backend.write_kv(fused[:, 4:6], fused[:, 6:], key_of_slices, value_of_slices, slots)
    backend.write_kv(fused[:, 4:6].contiguous(), fused[:, 6:].contiguous(), key_cache, value_cache, slots)
    assert as_bytes(key_of_slices).equal(as_bytes(key_cache))
    assert as_bytes(value_of_slices).equal(as_bytes(value_cache))
    assert pool[:, 0].isnan().all(), "the other layer is untouched"


def test_padding_goes_to_the_null_block_and_the_last_block_stays_byte_for_byte(backend, caches, random):
    """E13."""
    pool, key_cache, value_cache = caches(num_blocks=4)
    backend.write_kv(*random(2, 16, 2, 64, dtype=torch.bfloat16), key_cache, value_cache, 3 * 16 + torch.arange(16))
    before = as_bytes(pool)

    # One real token in block 2, three padded rows in the null block.
    backend.write_kv(
        *random(2, 4, 2, 64, dtype=torch.bfloat16), key_cache, value_cache, torch.tensor([2 * 16 + 1, 0, 0, 0])
    )
    tables = torch.tensor([[2], [0], [0], [0]], dtype=torch.int32)
    lens = torch.tensor([1, 0, 0, 0], dtype=torch.int32)
    backend.attention_decode(random(4, 4, 64, dtype=torch.bfloat16), key_cache, value_cache, tables, lens, 0.125, None)

    after = as_bytes(pool)
    assert after[3].equal(before[3])
    assert after[1].equal(before[1])
    assert not after[0].equal(before[0])


def test_two_blocks_swap(backend):
    cache = torch.arange(4.0)[:, None].repeat(1, 100)
    backend.copy_blocks(cache, torch.tensor([1, 3]), torch.tensor([3, 1]))
    assert cache[:, 0].tolist() == [0, 3, 2, 1]


def test_a_block_that_is_source_and_destination_is_read_as_it_was(backend):
    cache = torch.arange(6.0)[:, None].repeat(1, 100)
    backend.copy_blocks(cache, torch.tensor([1, 2, 3, 1]), torch.tensor([2, 3, 4, 5]))
    assert cache[:, 0].tolist() == [0, 1, 1, 2, 3, 1]


def test_nothing_to_copy(backend):
    cache = torch.arange(4.0)[:, None].repeat(1, 100)
    backend.copy_blocks(cache, torch.tensor([], dtype=torch.int64), torch.tensor([], dtype=torch.int64))
    assert cache[:, 0].tolist() == [0, 1, 2, 3]


def test_one_layer_of_a_pool_is_copied_and_the_others_are_not(backend, random):
    pool = random(5, 2, 2, 2 * 16 * 80, dtype=torch.bfloat16)
    before = pool.clone()
    backend.copy_blocks(pool[:, 1], torch.tensor([4]), torch.tensor([2]))
    assert pool[2, 1].equal(before[4, 1])
    assert pool[2, 0].equal(before[2, 0])
    assert pool[[0, 1, 3, 4]].equal(before[[0, 1, 3, 4]])


def test_all_layers_of_a_block_are_copied_at_once(backend, random):
    pool = random(5, 2, 2, 2 * 16 * 80, dtype=torch.bfloat16)
    before = pool.clone()
    backend.copy_blocks(pool, torch.tensor([4, 1]), torch.tensor([2, 4]))
    assert pool.equal(before[[0, 1, 4, 3, 1]])


@pytest.mark.parametrize("name", ["cpu", "triton"])
def test_a_pool_of_more_than_two_to_the_31_elements(name):
    """E20, in a process of its own: 4 GiB of addresses, of which a few blocks are ever touched."""
    if name == "triton":
        pytest.importorskip("triton")
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    script = Path(__file__).parent / "large_pool.py"
    done = subprocess.run([sys.executable, script, name], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["write_kv", "rope_write_kv", "attention_decode", "attention_prefill", "copy_blocks"]
