"""Every Triton kernel on the device against the reference on the processor, over odd shapes; unused slots hold NaN."""

import itertools
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from paged_chat.kernels import choose_backend, reference
from paged_chat.kernels.shared_run import SharedRun

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
TOLERANCES = {torch.float32: 1e-4, torch.float16: 4e-3, torch.bfloat16: 3e-2}
HEAD_DIMS = [64, 80, 96, 128, 256]
CONTEXT_LENS = [1, 15, 16, 17, 31, 32, 33, 255, 256, 257, 1000]
BLOCK_SIZE = 16
SCALE = 0.125

each_dtype = pytest.mark.parametrize("dtype", DTYPES)
each_head_dim = pytest.mark.parametrize("head_dim", HEAD_DIMS)


@pytest.fixture
def gpu(device):
    return choose_backend("triton", device)


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(1)


@pytest.fixture
def random(generator):
    return lambda *shape, dtype=torch.float32: torch.randn(*shape, generator=generator).to(dtype)


def close(actual: Tensor, expected: Tensor) -> None:
    assert not actual.isnan().any(), "NaN came through"
    tolerance = TOLERANCES[expected.dtype]
    torch.testing.assert_close(actual.cpu(), expected, rtol=tolerance, atol=tolerance)


@dataclass(frozen=True)
class Contexts:
    """Scattered contexts on the processor; `on` gives the same on a device."""

    key_cache: Tensor  # of layer 1 of 2: a view with a stride from block to block
    value_cache: Tensor
    block_tables: Tensor
    context_lens: Tensor

    def on(self, device: torch.device) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        pool = torch.stack([self.key_cache, self.value_cache], dim=1).to(device)
        return pool[:, 0], pool[:, 1], self.block_tables.to(device), self.context_lens.to(device)

    @property
    def all(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return self.key_cache, self.value_cache, self.block_tables, self.context_lens


@pytest.fixture
def contexts(generator):
    def make(context_lens: list[int], num_kv_heads: int, head_dim: int, dtype: torch.dtype) -> Contexts:
        widths = [-(-length // BLOCK_SIZE) for length in context_lens]
        num_blocks = 1 + sum(widths)
        pool = torch.full((num_blocks, 2, num_kv_heads, BLOCK_SIZE, head_dim), float("nan"), dtype=dtype)
        scattered = iter((torch.randperm(num_blocks - 1, generator=generator) + 1).tolist())
        tables = torch.zeros(len(context_lens), max(1, *widths), dtype=torch.int32)
        for row, (length, width) in enumerate(zip(context_lens, widths, strict=True)):
            tables[row, :width] = torch.tensor(list(itertools.islice(scattered, width)), dtype=torch.int32)
            position = torch.arange(length)
            slots = tables[row].long()[position // BLOCK_SIZE] * BLOCK_SIZE + position % BLOCK_SIZE
            key, value = torch.randn(2, length, num_kv_heads, head_dim, generator=generator).to(dtype)
            reference.write_kv(key, value, pool[:, 0], pool[:, 1], slots)
        return Contexts(pool[:, 0], pool[:, 1], tables, torch.tensor(context_lens, dtype=torch.int32))

    return make


@each_dtype
@each_head_dim
@pytest.mark.parametrize("group_size", [1, 3, 4, 7, 16])
@pytest.mark.parametrize("window", [None, 40])
def test_attention_decode(gpu, device, random, contexts, dtype, head_dim, group_size, window):
    paged = contexts([*CONTEXT_LENS, 0], 2, head_dim, dtype)
    query = random(len(CONTEXT_LENS) + 1, 2 * group_size, head_dim, dtype=dtype)
    expected = reference.attention_decode(query, *paged.all, SCALE, window)
    actual = gpu.attention_decode(query.to(device), *paged.on(device), SCALE, window)
    close(actual, expected)
    assert actual[-1].count_nonzero() == 0, "a context of 0 is padding"


@each_dtype
@each_head_dim
@pytest.mark.parametrize("group_size", [1, 3, 4, 7, 16])
@pytest.mark.parametrize("window", [None, 40, 330])
def test_attention_prefix(gpu, device, random, contexts, dtype, head_dim, group_size, window):
    """Groups, a group within a group, and a sequence that shares nothing."""
    runs = (SharedRun(0, 19, (0, 1, 2, 3)), SharedRun(19, 37, (1, 3)), SharedRun(0, 8, (4, 5)))
    paged = contexts([305, 597, 554, 892, 135, 144, 17], 2, head_dim, dtype)
    for run in runs:
        places = slice(run.first_block, run.end_block)
        paged.block_tables[list(run.rows), places] = paged.block_tables[run.rows[0], places].clone()
    query = random(7, 2 * group_size, head_dim, dtype=dtype)
    expected = reference.attention_decode(query, *paged.all, SCALE, window)
    close(gpu.attention_prefix(query.to(device), *paged.on(device), SCALE, window, runs), expected)


@each_dtype
@each_head_dim
@pytest.mark.parametrize("group_size", [1, 3, 4, 7, 16])
@pytest.mark.parametrize("window", [None, 40])
def test_attention_prefill(gpu, device, random, contexts, dtype, head_dim, group_size, window):
    query_lens = [1, 15, 16, 17, 64, 300]
    starts = torch.tensor([0, *itertools.accumulate(query_lens)], dtype=torch.int32)
    paged = contexts([1, 33, 16, 500, 64, 300], 2, head_dim, dtype)
    query = random(sum(query_lens), 2 * group_size, head_dim, dtype=dtype)
    expected = reference.attention_prefill(query, *paged.all, starts, max(query_lens), SCALE, window)
    actual = gpu.attention_prefill(
        query.to(device), *paged.on(device), starts.to(device), max(query_lens), SCALE, window
    )
    close(actual, expected)


@each_dtype
def test_a_decode_is_the_same_to_the_bit_alone_and_in_a_batch(gpu, device, random, contexts, dtype):
    paged = contexts([1000, 17, 256, 3], 2, 128, dtype)
    query = random(4, 8, 128, dtype=dtype).to(device)
    key_cache, value_cache, tables, lens = paged.on(device)
    together = gpu.attention_decode(query, key_cache, value_cache, tables, lens, SCALE, None)
    for row in range(4):
        one = slice(row, row + 1)
        alone = gpu.attention_decode(query[one], key_cache, value_cache, tables[one], lens[one], SCALE, None)
        assert alone.equal(together[one])


@each_dtype
@each_head_dim
@pytest.mark.parametrize(("num_heads", "num_kv_heads"), [(9, 3), (4, 4), (16, 1)])
@pytest.mark.parametrize("rotated_share", [1, 2])
def test_rope_write_kv(gpu, device, random, dtype, head_dim, num_heads, num_kv_heads, rotated_share):
    half = head_dim // 2 // rotated_share
    fused = random(5, num_heads + 2 * num_kv_heads, head_dim, dtype=dtype)
    angles = torch.outer(torch.arange(50.0), 100.0 ** -torch.linspace(0, 1, half))
    positions, slots = torch.tensor([0, 49, 7, 0, 0]), torch.tensor([63, 16, 39, 0, 0])  # two padded rows
    results = []
    for kernels, place in ((gpu, device), (reference, torch.device("cpu"))):
        mine = fused.clone().to(place)
        query, rest = mine[:, :num_heads], mine[:, num_heads:]
        caches = torch.full((2, 4, num_kv_heads, 16, head_dim), float("nan"), dtype=dtype, device=place)
        kernels.rope_write_kv(
            query,
            rest[:, :num_kv_heads],
            rest[:, num_kv_heads:],
            positions.to(place),
            angles.cos().to(place),
            angles.sin().to(place),
            *caches,
            slots.to(place),
        )
        assert caches[:, 0].isnan().sum() == 2 * 15 * num_kv_heads * head_dim, "one slot of the null block"
        results.append((query, caches[:, 1:].nan_to_num(nan=100.0)))
    for actual, expected in zip(*results, strict=True):
        close(actual, expected)


@each_dtype
@each_head_dim
def test_rope_and_write_kv_apart(gpu, device, random, dtype, head_dim):
    query, (key, value) = random(5, 6, head_dim, dtype=dtype), random(2, 5, 2, head_dim, dtype=dtype)
    angles = torch.outer(torch.arange(50.0), 100.0 ** -torch.linspace(0, 1, head_dim // 2))
    positions, slots = torch.tensor([0, 49, 7, 8, 9]), torch.tensor([63, 16, 39, 1, 47])
    results = []
    for kernels, place in ((gpu, device), (reference, torch.device("cpu"))):
        turned, written = query.clone().to(place), key.clone().to(place)
        kernels.rope(turned, written, positions.to(place), angles.cos().to(place), angles.sin().to(place))
        caches = torch.full((2, 4, 2, 16, head_dim), float("nan"), dtype=dtype, device=place)
        kernels.write_kv(written, value.to(place), *caches, slots.to(place))
        results.append((turned, caches.nan_to_num(nan=100.0)))
    for actual, expected in zip(*results, strict=True):
        close(actual, expected)


@each_dtype
@pytest.mark.parametrize("width", [64, 100, 576, 4096, 16384])
@pytest.mark.parametrize("with_residual", [False, True])
def test_rms_norm(gpu, device, random, dtype, width, with_residual):
    hidden, weight = random(5, width, dtype=dtype), random(width, dtype=dtype)
    residual = random(5, width) if with_residual else None
    expected = reference.rms_norm(hidden, weight, 1e-5, residual)
    there = residual.to(device) if residual is not None else None
    actual = gpu.rms_norm(hidden.to(device), weight.to(device), 1e-5, there)
    close(actual[0], expected[0])
    close(actual[1], expected[1])


@each_dtype
@pytest.mark.parametrize("width", [7, 1536, 14336])
def test_silu_mul(gpu, device, random, dtype, width):
    gate_up = random(5, 2 * width, dtype=dtype)
    close(gpu.silu_mul(gate_up.to(device)), reference.silu_mul(gate_up))


@each_dtype
def test_linear(gpu, device, random, dtype):
    hidden, weight, bias = random(5, 96, dtype=dtype), random(40, 96, dtype=dtype) / 10, random(40, dtype=dtype)
    for given in (bias, None):
        there = given.to(device) if given is not None else None
        close(gpu.linear(hidden.to(device), weight.to(device), there), reference.linear(hidden, weight, given))


def test_copy_blocks_reads_all_sources_first(gpu, device, random):
    pool = random(6, 2, 3, 16, 80, dtype=torch.bfloat16)
    cache, source, destination = pool.to(device, copy=True), torch.tensor([1, 2, 3, 1]), torch.tensor([2, 3, 4, 5])
    gpu.copy_blocks(cache, source.to(device), destination.to(device))
    assert cache.cpu().equal(pool[[0, 1, 1, 2, 3, 1]])


def test_a_pool_of_more_than_two_to_the_31_elements(gpu, device, random):
    """E20."""
    elements = 2 * 16 * 64
    num_blocks = 2**31 // (2 * elements) + 8
    if torch.cuda.mem_get_info(device)[0] < 6 * 2**30:
        pytest.skip("needs 6 GiB of free device memory")
    pool = torch.empty(num_blocks, 2, 2, 16, 64, dtype=torch.bfloat16, device=device)
    small = torch.zeros(2, 4, 2, 16, 64, dtype=torch.bfloat16)
    table, small_table = [num_blocks - 1, 5, num_blocks - 2], [1, 2, 3]
    position = torch.arange(40)
    angles = torch.outer(position, 10000.0 ** -torch.linspace(0, 1, 32))
    query, (key, value) = random(40, 6, 64, dtype=torch.bfloat16), random(2, 40, 2, 64, dtype=torch.bfloat16)
    outputs = []
    for kernels, place, caches, blocks in (
        (gpu, device, (pool[:, 0], pool[:, 1]), table),
        (reference, torch.device("cpu"), tuple(small), small_table),
    ):
        tables = torch.tensor([blocks], dtype=torch.int32)
        slots = tables[0].long()[position // 16] * 16 + position % 16
        turned = query.to(place, copy=True)
        kernels.rope_write_kv(
            turned,
            key.to(place, copy=True),
            value.to(place),
            position.to(place),
            angles.cos().to(place),
            angles.sin().to(place),
            *caches,
            slots.to(place),
        )
        tables, lens = tables.to(place), torch.tensor([40], dtype=torch.int32, device=place)
        starts = torch.tensor([0, 40], dtype=torch.int32, device=place)
        decoded = kernels.attention_decode(turned[-1:], *caches, tables, lens, SCALE, None)
        outputs.append((decoded, kernels.attention_prefill(turned, *caches, tables, lens, starts, 40, SCALE, None)))
    for actual, expected in zip(*outputs, strict=True):
        close(actual, expected)
    gpu.copy_blocks(pool, torch.tensor([num_blocks - 1], device=device), torch.tensor([7], device=device))
    assert pool[7].equal(pool[num_blocks - 1])
