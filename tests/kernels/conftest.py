"""The backends under test, and paged contexts made for each of them.

Triton decides when it is imported whether its kernels run on a device or through the interpreter. So interpreted
kernels live in a process of their own, and the tests here, which also compile for real chips, stay free of it.
"""

import importlib.util
import itertools
import multiprocessing
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.multiprocessing  # tensors then reach another process as shared memory: it writes where we read
from torch import Tensor

from paged_chat.kernels import Backend, choose_backend, reference

NAN = float("nan")
TOLERANCES = {  # of results about 1 in size, against the reference in the same dtype
    torch.float32: 2e-5,
    torch.float16: 2e-3,
    torch.bfloat16: 1.6e-2,
}


class InterpretedTriton:
    """The Triton backend in another process, through triton's interpreter; calls look like those of any backend."""

    name = "triton"

    def __init__(self, process: ProcessPoolExecutor) -> None:
        self._process = process

    def __getattr__(self, operation: str) -> Callable[..., Any]:
        from paged_chat.kernels import gpu

        function = getattr(gpu, operation)
        return lambda *arguments: self._process.submit(function, *arguments).result()


@pytest.fixture(scope="session")
def interpreted_triton() -> Iterator[InterpretedTriton]:
    if importlib.util.find_spec("triton") is None:
        pytest.skip("triton isn't installed")
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn) as process, pytest.MonkeyPatch.context() as environment:
        environment.setenv("TRITON_INTERPRET", "1")
        assert process.submit(os.getenv, "TRITON_INTERPRET").result() == "1"  # starts it, with this environment
        environment.undo()
        yield InterpretedTriton(process)


@pytest.fixture(params=["cpu", "triton"])
def backend(request: pytest.FixtureRequest) -> Backend:
    """Each fast backend that the processor can run."""
    if request.param == "triton":
        return request.getfixturevalue("interpreted_triton")
    return choose_backend("cpu", torch.device("cpu"))


@dataclass(frozen=True)
class PagedContexts:
    """Sequences of random keys and values in one layer of a pool whose every other slot is NaN."""

    backend: Backend
    pool: Tensor  # [N, 2 layers, 2, elements]
    key_cache: Tensor  # of layer 1
    value_cache: Tensor
    block_tables: Tensor  # [S, max_blocks] int32
    context_lens: Tensor  # [S] int32

    def decode(self, query: Tensor, scale: float = 0.125, window: int | None = None) -> Tensor:
        return self.backend.attention_decode(
            query, self.key_cache, self.value_cache, self.block_tables, self.context_lens, scale, window
        )

    def prefill(self, query: Tensor, query_lens: list[int], scale: float = 0.125, window: int | None = None) -> Tensor:
        return self.backend.attention_prefill(
            query,
            self.key_cache,
            self.value_cache,
            self.block_tables,
            self.context_lens,
            torch.tensor([0, *itertools.accumulate(query_lens)], dtype=torch.int32),
            max(query_lens),
            scale,
            window,
        )


def allocate(backend: Backend, num_blocks: int, num_kv_heads: int, block_size: int, head_dim: int, dtype: torch.dtype):
    """A pool of 2 layers, all NaN, and the key and value caches of layer 1: views with a stride from block to block."""
    key_shape, value_shape = backend.kv_block_shapes(num_kv_heads, block_size, head_dim)
    pool = torch.full((num_blocks, 2, 2, num_kv_heads * block_size * head_dim), NAN, dtype=dtype)
    return pool, pool[:, 1, 0].view(num_blocks, *key_shape), pool[:, 1, 1].view(num_blocks, *value_shape)


def page(
    backend: Backend,
    context_lens: list[int],
    *,
    num_kv_heads: int = 2,
    head_dim: int = 64,
    dtype: torch.dtype = torch.float32,
    block_size: int = 16,
    seed: int = 0,
) -> PagedContexts:
    """Random contexts, the same for each backend, in scattered blocks of a pool just large enough."""
    generator = torch.Generator().manual_seed(seed)
    widths = [-(-length // block_size) for length in context_lens]
    num_blocks = 1 + sum(widths)
    pool, key_cache, value_cache = allocate(backend, num_blocks, num_kv_heads, block_size, head_dim, dtype)
    # Through the interpreter a token takes milliseconds to write; Triton's layout is the reference's.
    writer = reference if isinstance(backend, InterpretedTriton) else backend
    scattered = iter((torch.randperm(num_blocks - 1, generator=generator) + 1).tolist())
    block_tables = torch.zeros(len(context_lens), max(1, *widths), dtype=torch.int32)
    for sequence, (length, width) in enumerate(zip(context_lens, widths, strict=True)):
        block_tables[sequence, :width] = torch.tensor(list(itertools.islice(scattered, width)), dtype=torch.int32)
        position = torch.arange(length)
        slots = block_tables[sequence].long()[position // block_size] * block_size + position % block_size
        key = torch.randn(length, num_kv_heads, head_dim, generator=generator).to(dtype)
        value = torch.randn(length, num_kv_heads, head_dim, generator=generator).to(dtype)
        writer.write_kv(key, value, key_cache, value_cache, slots)
    lens = torch.tensor(context_lens, dtype=torch.int32)
    return PagedContexts(backend, pool, key_cache, value_cache, block_tables, lens)


@pytest.fixture
def paged(backend):
    """`fast, truth = paged([33, 5], head_dim=80)`: the same contexts in the backend's pool and in the reference's."""
    return lambda context_lens, **shape: (page(backend, context_lens, **shape), page(reference, context_lens, **shape))


@pytest.fixture
def caches(backend):
    """`pool, key_cache, value_cache = caches(num_blocks=4)`: of one key/value head pair of 64, all NaN."""
    return lambda num_blocks, dtype=torch.bfloat16: allocate(backend, num_blocks, 2, 16, 64, dtype)


@pytest.fixture
def close():
    def check(actual: Tensor, expected: Tensor) -> None:
        assert not actual.isnan().any(), "NaN came through"
        tolerance = TOLERANCES[expected.dtype]
        torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)

    return check


@pytest.fixture
def random():
    """`random(5, 9, 64, dtype=torch.bfloat16)`: seeded normal numbers."""
    generator = torch.Generator().manual_seed(1)

    def draw(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.randn(*shape, generator=generator).to(dtype)

    return draw


@pytest.fixture
def page_for():
    """`page_for(backend, [33, 5])`: contexts for one backend of the test's choice."""
    return page


@pytest.fixture
def allocate_for():
    """`pool, key_cache, value_cache = allocate_for(backend, num_blocks, num_kv_heads, block_size, head_dim, dtype)`."""
    return allocate
