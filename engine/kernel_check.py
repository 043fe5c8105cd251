"""Each kernel of a backend against the reference, on this very machine: how far off, and how fast."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from ..kernels import Backend, choose_backend
from .config import EngineConfig
from .errors import InvalidParameter
from .model.loader import choose_device, choose_dtype

BLOCK_SIZE = 16
# Largest error that rounding explains, relative to the largest value of the reference's result.
TOLERANCES = {torch.float32: 1e-4, torch.bfloat16: 3e-2, torch.float16: 4e-3}
# (query heads, key/value heads, head size): SmolLM2-135M, Llama 3 8B, and odd ones.
HEADS = ((9, 3, 64), (32, 8, 128), (4, 4, 80))
MAX_CONTEXT = 300
TIMED_RUNS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelCheck:
    """One kernel on one shape; `fault` is what it raised, and then there is no error or time."""

    kernel: str
    shape: str
    tolerance: float
    relative_error: float | None = None
    time_ms: float | None = None
    reference_ms: float | None = None
    fault: str | None = None

    @property
    def passed(self) -> bool:
        # A NaN compares false, and so fails.
        return self.relative_error is not None and self.relative_error <= self.tolerance


@dataclass(frozen=True, slots=True)
class _Case:
    """`prepare` makes a backend's inputs and gives the call to time and, for after the first call, its result."""

    kernel: str
    shape: str
    prepare: Callable[[Backend], tuple[Callable[[], object], Callable[[], Tensor]]]


def check_kernels(config: EngineConfig) -> Iterator[KernelCheck]:
    """Runs every kernel that `config` would use.

    Raises InvalidParameter for a device or kernels that this machine doesn't have.
    """
    device = choose_device(config.device)
    dtype = choose_dtype(config.dtype, device)
    try:
        backend = choose_backend(config.kernels, device)
    except ValueError as error:
        raise InvalidParameter(str(error)) from error
    reference = choose_backend("reference", device)
    for case in _cases(device, dtype):
        expected, reference_ms = _run(case, reference, device)
        try:
            result, time_ms = _run(case, backend, device)
        except Exception as error:  # whatever a broken kernel raises is what this reports
            fault = f"{type(error).__name__}: {error}"
            yield KernelCheck(kernel=case.kernel, shape=case.shape, tolerance=TOLERANCES[dtype], fault=fault)
            continue
        difference = (result.double() - expected.double()).abs().max().item()
        yield KernelCheck(
            kernel=case.kernel,
            shape=case.shape,
            tolerance=TOLERANCES[dtype],
            relative_error=difference / max(1.0, expected.double().abs().max().item()),
            time_ms=time_ms,
            reference_ms=reference_ms,
        )


def _run(case: _Case, backend: Backend, device: torch.device) -> tuple[Tensor, float]:
    """The result of the first call, and the milliseconds of the fastest of some more."""
    call, result = case.prepare(backend)
    call()
    first = result().clone()
    times = []
    for _ in range(TIMED_RUNS):
        start = time.perf_counter()
        call()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append((time.perf_counter() - start) * 1e3)
    return first, min(times)


def _cases(device: torch.device, dtype: torch.dtype) -> Iterator[_Case]:
    make = _Inputs(device, dtype)
    for heads in HEADS:
        yield make.write_kv(heads)
        yield make.attention_decode(heads)
        yield make.attention_prefill(heads, window=None)
        yield make.attention_prefill(heads, window=40)
        yield make.rope(heads)
    yield make.copy_blocks()
    for width in (576, 4096):
        yield make.rms_norm(width)
        yield make.silu_mul(width)
        yield make.linear(width)


class _Inputs:
    """Random inputs, the same for every backend."""

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        self._generator = torch.Generator().manual_seed(0)
        self._device = device
        self._dtype = dtype

    def _random(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self._generator).to(self._device, self._dtype)

    def _integers(self, values: list[int] | Tensor, dtype: torch.dtype) -> Tensor:
        return torch.as_tensor(values, dtype=dtype).to(self._device)

    def _filled_cache(self, heads: tuple[int, int, int], context_lens: list[int]) -> "_PagedContext":
        _, num_kv_heads, head_dim = heads
        counts = [-(-length // BLOCK_SIZE) for length in context_lens]
        order = torch.randperm(sum(counts), generator=self._generator) + 1  # block 0 is the null block
        tables = torch.zeros(len(counts), max(counts), dtype=torch.int32)
        for row, blocks in enumerate(order.split(counts)):
            tables[row, : len(blocks)] = blocks
        slots = torch.cat(
            [
                (tables[row].long()[:, None] * BLOCK_SIZE + torch.arange(BLOCK_SIZE)).flatten()[:length]
                for row, length in enumerate(context_lens)
            ]
        )
        return _PagedContext(
            key=self._random(len(slots), num_kv_heads, head_dim),
            value=self._random(len(slots), num_kv_heads, head_dim),
            slot_mapping=self._integers(slots, torch.int64),
            block_tables=self._integers(tables, torch.int32),
            context_lens=self._integers(context_lens, torch.int32),
            num_blocks=sum(counts) + 1,
        )

    def write_kv(self, heads: tuple[int, int, int]) -> _Case:
        """What was written is read back through the backend's attention, since the layout in a block is its own."""
        context_lens = [1, 15, 16, 17, 33]
        context = self._filled_cache(heads, context_lens)
        query = self._random(len(context_lens), heads[0], heads[2])

        def prepare(backend: Backend) -> tuple[Callable[[], object], Callable[[], Tensor]]:
            caches = context.caches(backend)
            return lambda: context.write(backend, caches), lambda: context.decode(backend, caches, query)

        return _Case("write_kv", f"{sum(context_lens)} tokens, {_shape(heads)}", prepare)

    def attention_decode(self, heads: tuple[int, int, int]) -> _Case:
        context_lens = [1, 15, 16, 17, 31, 33, MAX_CONTEXT]
        context = self._filled_cache(heads, context_lens)
        query = self._random(len(context_lens), heads[0], heads[2])

        def prepare(backend: Backend) -> tuple[Callable[[], object], Callable[[], Tensor]]:
            caches = context.caches(backend)
            context.write(backend, caches)
            return lambda: context.decode(backend, caches, query), lambda: context.decode(backend, caches, query)

        return _Case("attention_decode", f"{len(context_lens)} sequences, {_shape(heads)}", prepare)

    def attention_prefill(self, heads: tuple[int, int, int], window: int | None) -> _Case:
        query_lens, context_lens = [1, 17, 64], [1, 40, MAX_CONTEXT]
        context = self._filled_cache(heads, context_lens)
        query = self._random(sum(query_lens), heads[0], heads[2])
        cu_seqlens_q = self._integers([0, 1, 18, 82], torch.int32)

        def prepare(backend: Backend) -> tuple[Callable[[], object], Callable[[], Tensor]]:
            caches = context.caches(backend)
            context.write(backend, caches)

            def attend() -> Tensor:
                return backend.attention_prefill(
                    query,
                    *caches,
                    context.block_tables,
                    context.context_lens,
                    cu_seqlens_q,
                    max(query_lens),
                    heads[2] ** -0.5,
                    window,
                )

            return attend, attend

        shape = f"{sum(query_lens)} queries, {_shape(heads)}" + (f", window {window}" if window else "")
        return _Case("attention_prefill", shape, prepare)

    def rope(self, heads: tuple[int, int, int]) -> _Case:
        query, key = self._random(33, heads[0], heads[2]), self._random(33, heads[1], heads[2])
        positions = self._integers(torch.arange(33) * 7, torch.int64)
        angles = torch.arange(256)[:, None] / 10000 ** (torch.arange(heads[2] // 2) / (heads[2] // 2))
        cos, sin = angles.cos().to(self._device), angles.sin().to(self._device)

        def prepare(backend: Backend) -> tuple[Callable[[], object], Callable[[], Tensor]]:
            rotated = query.clone(), key.clone()
            return lambda: backend.rope(*rotated, positions, cos, sin), lambda: torch.cat(rotated, dim=1)

        return _Case("rope", f"33 tokens, {_shape(heads)}", prepare)

    def copy_blocks(self) -> _Case:
        cache = self._random(64, 3, BLOCK_SIZE, 64)
        source = self._integers([1, 2, 63], torch.int64)
        destination = self._integers([40, 1, 5], torch.int64)  # block 1 is read before it is written

        def prepare(backend: Backend) -> tuple[Callable[[], object], Callable[[], Tensor]]:
            copied = cache.clone()
            return lambda: backend.copy_blocks(copied, source, destination), lambda: copied

        return _Case("copy_blocks", "3 of 64 blocks", prepare)

    def rms_norm(self, width: int) -> _Case:
        hidden, residual, weight = self._random(33, width), self._random(33, width), self._random(width)

        def prepare(backend: Backend) -> tuple[Callable[[], object], Callable[[], Tensor]]:
            def norm() -> Tensor:
                # Clones, as a kernel may use its inputs' memory for its results.
                return torch.cat(backend.rms_norm(hidden.clone(), weight, 1e-5, residual.clone()))

            return norm, norm

        return _Case("rms_norm", f"33 x {width}", prepare)

    def silu_mul(self, width: int) -> _Case:
        gate_up = self._random(33, 2 * width)

        def prepare(backend: Backend) -> tuple[Callable[[], object], Callable[[], Tensor]]:
            return lambda: backend.silu_mul(gate_up), lambda: backend.silu_mul(gate_up)

        return _Case("silu_mul", f"33 x {width}", prepare)

    def linear(self, width: int) -> _Case:
        hidden, weight, bias = self._random(33, width), self._random(512, width) / width**0.5, self._random(512)

        def prepare(backend: Backend) -> tuple[Callable[[], object], Callable[[], Tensor]]:
            return lambda: backend.linear(hidden, weight, bias), lambda: backend.linear(hidden, weight, bias)

        return _Case("linear", f"33 x {width} to 512", prepare)


@dataclass(frozen=True, slots=True, kw_only=True)
class _PagedContext:
    """Keys and values of some sequences, and where they lie in a cache of shuffled blocks."""

    key: Tensor  # [T, K, D]
    value: Tensor  # [T, K, D]
    slot_mapping: Tensor  # [T]
    block_tables: Tensor  # [S, max_blocks]
    context_lens: Tensor  # [S]
    num_blocks: int

    def caches(self, backend: Backend) -> tuple[Tensor, Tensor]:
        """Empty key and value caches in the backend's layout; NaN in every slot, as unused ones may hold it."""
        shapes = backend.kv_block_shapes(self.key.shape[1], BLOCK_SIZE, self.key.shape[2])
        key_cache, value_cache = (self.key.new_full((self.num_blocks, *shape), float("nan")) for shape in shapes)
        return key_cache, value_cache

    def write(self, backend: Backend, caches: tuple[Tensor, Tensor]) -> None:
        backend.write_kv(self.key, self.value, *caches, self.slot_mapping)

    def decode(self, backend: Backend, caches: tuple[Tensor, Tensor], query: Tensor) -> Tensor:
        scale = query.shape[-1] ** -0.5
        return backend.attention_decode(query, *caches, self.block_tables, self.context_lens, scale, None)


def _shape(heads: tuple[int, int, int]) -> str:
    return f"heads {heads[0]}/{heads[1]} x {heads[2]}"
