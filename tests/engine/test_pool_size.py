"""How many blocks the free memory makes."""

from typing import Any

import pytest
import torch

from paged_chat.engine import EngineConfig, pool_size
from paged_chat.engine.pool_size import choose_num_blocks

CPU, GPU = torch.device("cpu"), torch.device("cuda:0")
MIB = 2**20
BLOCK = MIB  # bytes of a block in these stories


@pytest.fixture(autouse=True)
def free_memory(monkeypatch: pytest.MonkeyPatch) -> dict[str, int | None]:
    free: dict[str, int | None] = {"cpu": 8192 * MIB, "cuda": 1000 * MIB}
    monkeypatch.setattr(pool_size, "free_memory", lambda device: free[device.type])
    return free


def blocks(device: torch.device = CPU, window: int = 8192, block_bytes: int = BLOCK, **config: Any) -> int:
    return choose_num_blocks(EngineConfig(**config), device, block_bytes, window)


def test_a_given_number_of_blocks_is_taken_as_it_is():
    assert blocks(num_blocks=512) == 512
    assert blocks(num_blocks=2, kv_memory=0.5) == 2


@pytest.mark.parametrize(("kv_memory", "expected"), [(100 * MIB, 100), (100 * MIB - 1, 99), (100 * MIB + 1, 100)])
def test_kv_memory_in_bytes_holds_the_whole_pool(kv_memory, expected):
    assert blocks(kv_memory=kv_memory) == expected


@pytest.mark.parametrize(("device", "expected"), [(CPU, 4096), (GPU, 500)])
def test_kv_memory_may_be_a_share_of_what_is_free(device, expected):
    assert blocks(device, kv_memory=0.5) == expected


def test_a_share_of_1_is_all_that_is_free_and_not_one_byte():
    assert blocks(kv_memory=1.0) == 8192
    assert blocks(kv_memory=1, block_bytes=1) == 2


def test_a_gpu_gives_most_of_what_is_free():
    assert blocks(GPU) == 900


def test_a_cpu_gives_a_quarter_of_what_is_free():
    # A window of 8192 tokens takes 512 blocks of 16; four of them are as much as a quarter of 8 GiB.
    assert blocks(window=8192) == 2048


def test_a_cpu_gives_no_more_than_a_few_windows():
    assert blocks(window=4096) == 4 * 256 + 1  # the null block
    assert blocks(window=4097) == 4 * 257 + 1


def test_a_small_window_still_gets_512_mib():
    assert blocks(window=64) == 512


def test_little_memory_makes_a_small_pool(free_memory):
    free_memory["cpu"] = 40 * MIB
    assert blocks() == 10


def test_a_pool_has_at_least_the_null_block_and_one_more(free_memory):
    free_memory["cpu"] = 0
    assert blocks() == 2
    assert blocks(kv_memory=1) == 2


def test_where_the_system_does_not_say_it_counts_on_4_gib(free_memory):
    free_memory["cpu"] = None
    assert blocks(kv_memory=0.5) == 2048
