"""The pool's bytes: where a layer, a block, its keys and its values lie."""

import pytest
import torch

from paged_chat.engine.cache.kv_cache import KVCache, block_bytes
from paged_chat.engine.errors import OutOfMemory
from paged_chat.kernels import choose_backend

CPU = torch.device("cpu")


def make(num_blocks: int = 5, kernels: str = "reference", dtype: torch.dtype = torch.float32) -> KVCache:
    """2 layers, 3 heads of 16 numbers, blocks of 4 tokens."""
    return KVCache(
        choose_backend(kernels, CPU),
        num_layers=2,
        num_blocks=num_blocks,
        num_kv_heads=3,
        block_size=4,
        head_dim=16,
        dtype=dtype,
        device=CPU,
    )


@pytest.mark.parametrize(("dtype", "expected"), [(torch.float32, 3072), (torch.bfloat16, 1536)])
def test_a_block_takes_its_keys_and_values_of_all_layers(dtype, expected):
    cache = make(dtype=dtype)
    assert 2 * 2 * 3 * 16 * 4 * dtype.itemsize == expected
    assert cache.block_bytes == block_bytes(2, 3, 16, 4, dtype) == expected
    assert (cache.num_blocks, cache.pool.dtype, cache.pool.device) == (5, dtype, CPU)


@pytest.mark.parametrize("kernels", ["reference", "cpu"])
def test_a_layers_blocks_follow_one_another_each_with_its_keys_before_its_values(kernels):
    cache = make(kernels=kernels)
    elements = 3 * 4 * 16
    cache.pool.copy_(torch.arange(2 * 5 * 2 * elements).view(cache.pool.shape))
    for layer in range(2):
        keys, values = cache.key_caches[layer], cache.value_caches[layer]
        assert keys.shape[0] == values.shape[0] == 5
        for block_id in range(5):
            first = ((layer * 5 + block_id) * 2) * elements
            assert keys[block_id].flatten().tolist() == list(range(first, first + elements))
            assert values[block_id].flatten().tolist() == list(range(first + elements, first + 2 * elements))


def test_copies_are_of_whole_blocks_in_every_layer_and_read_all_sources_first():
    cache = make()
    cache.pool.copy_(torch.arange(5.0)[None, :, None, None].expand(cache.pool.shape))
    cache.copy_blocks(((1, 2), (2, 3), (0, 1)))
    for layer in range(2):
        for caches in (cache.key_caches, cache.value_caches):
            assert caches[layer].flatten(1).unique(dim=1).squeeze(1).tolist() == [0, 0, 1, 2, 4]


def test_a_pool_that_memory_cant_hold_is_refused_with_its_size():
    with pytest.raises(OutOfMemory, match=r"a pool of 1099511627776 blocks takes 3,221,225,472 MiB") as refusal:
        make(num_blocks=2**40)
    assert "lower num_blocks (--num-blocks) or kv_memory" in str(refusal.value)
