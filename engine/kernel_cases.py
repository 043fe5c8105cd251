"""What each kernel is checked on: random inputs, the same for every backend, in shapes of real models and odd ones."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from ..kernels import Backend
from ..kernels.shared_run import SharedRun
from .counted import counted

BLOCK_SIZE = 16
# (query heads, key/value heads, head size): SmolLM2-135M, Llama 3 8B, and odd ones.
HEADS = ((9, 3, 64), (32, 8, 128), (4, 4, 80))
MAX_CONTEXT = 300
# Where a GPU reads as fast as it can: many sequences with long contexts, Llama 3 8B's heads.
MANY_SEQUENCES, LONG_CONTEXT = 64, 8192

Prepared = tuple[Callable[[], object], Callable[[], Tensor]]


@dataclass(frozen=True, slots=True)
class KernelCase:
    """`prepare` makes a backend's inputs and gives the call to time and, for after the first call, its result."""

    kernel: str
    shape: str
    prepare: Callable[[Backend], Prepared]
    num_bytes: int | None = None  # read by one call, where the speed of reading is all that counts


def kernel_cases(backend: Backend, device: torch.device, dtype: torch.dtype) -> Iterator[KernelCase]:
    """Every operation of `Backend` on several shapes, and what else the engine has for such a backend and device."""
    make = KernelInputs(device, dtype)
    for heads in HEADS:
        yield make.write_kv(heads)
        yield make.attention_decode(heads)
        yield make.attention_prefix(heads)
        yield make.attention_prefill(heads, window=None)
        yield make.attention_prefill(heads, window=40)
        yield make.rope(heads)
        yield make.rope_write_kv(heads)
    yield make.copy_blocks()
    for width in (576, 4096):
        yield make.rms_norm(width)
        yield make.silu_mul(width)
        yield make.linear(width)
        if backend.name == "cpu":
            yield make.packed_linear(width, bits=4)
            yield make.packed_linear(width, bits=8)
    if device.type == "cuda":
        yield make.long_decode()


class KernelInputs:
    """Random inputs, the same for every backend."""

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        self._generator = torch.Generator().manual_seed(0)
        self._device = device
        self._dtype = dtype

    def _random(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self._generator).to(self._device, self._dtype)

    def _integers(self, values: list[int] | Tensor, dtype: torch.dtype) -> Tensor:
        return torch.as_tensor(values, dtype=dtype).to(self._device)

    def _filled_cache(self, heads: tuple[int, int, int], context_lens: list[int]) -> "PagedContext":
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
        return PagedContext(
            key=self._random(len(slots), num_kv_heads, head_dim),
            value=self._random(len(slots), num_kv_heads, head_dim),
            slot_mapping=self._integers(slots, torch.int64),
            block_tables=self._integers(tables, torch.int32),
            context_lens=self._integers(context_lens, torch.int32),
            num_blocks=sum(counts) + 1,
        )

    def write_kv(self, heads: tuple[int, int, int]) -> KernelCase:
        """What was written is read back through the backend's attention, since the layout in a block is its own."""
        context_lens = [1, 15, 16, 17, 33]
        context = self._filled_cache(heads, context_lens)
        query = self._random(len(context_lens), heads[0], heads[2])

        def prepare(backend: Backend) -> Prepared:
            caches = context.caches(backend)
            return lambda: context.write(backend, caches), lambda: context.decode(backend, caches, query)

        return KernelCase("write_kv", f"{sum(context_lens)} tokens, {_shape(heads)}", prepare)

    def attention_decode(self, heads: tuple[int, int, int]) -> KernelCase:
        context_lens = [1, 15, 16, 17, 31, 33, MAX_CONTEXT]
        context = self._filled_cache(heads, context_lens)
        query = self._random(len(context_lens), heads[0], heads[2])

        def prepare(backend: Backend) -> Prepared:
            caches = context.caches(backend)
            context.write(backend, caches)
            return lambda: context.decode(backend, caches, query), lambda: context.decode(backend, caches, query)

        return KernelCase("attention_decode", f"{len(context_lens)} sequences, {_shape(heads)}", prepare)

    def attention_prefix(self, heads: tuple[int, int, int]) -> KernelCase:
        """Four sequences that begin with the blocks of the first."""
        num_common = 16
        context_lens = [MAX_CONTEXT - 7 * row for row in range(4)]
        context = self._filled_cache(heads, context_lens)
        context.block_tables[:, :num_common] = context.block_tables[0, :num_common].clone()
        runs = (SharedRun(0, num_common, tuple(range(4))),)
        query = self._random(len(context_lens), heads[0], heads[2])

        def prepare(backend: Backend) -> Prepared:
            caches = context.caches(backend)
            context.write(backend, caches)

            def attend() -> Tensor:
                tables, lens = context.block_tables, context.context_lens
                return backend.attention_prefix(query, *caches, tables, lens, heads[2] ** -0.5, None, runs)

            return attend, attend

        return KernelCase("attention_prefix", f"{len(context_lens)} sequences, {_shape(heads)}", prepare)

    def long_decode(self, num_seqs: int = MANY_SEQUENCES, context_len: int = LONG_CONTEXT) -> KernelCase:
        """Fewer sequences where the device's memory doesn't hold so many; their numbers are made on the device."""
        heads = HEADS[1]
        num_blocks = -(-context_len // BLOCK_SIZE)
        shape = (heads[1], BLOCK_SIZE, heads[2])
        seq_bytes = 2 * num_blocks * heads[1] * BLOCK_SIZE * heads[2] * self._dtype.itemsize
        num_seqs = max(1, min(num_seqs, torch.cuda.mem_get_info(self._device)[0] // 4 // seq_bytes))
        tables = torch.randperm(num_seqs * num_blocks, generator=self._generator) + 1
        block_tables = self._integers(tables.view(num_seqs, num_blocks), torch.int32)
        context_lens = self._integers([context_len] * num_seqs, torch.int32)
        query = self._random(num_seqs, heads[0], heads[2])

        def prepare(backend: Backend) -> Prepared:
            # The reference and Triton lay out a block alike, so both can be given the same numbers.
            assert backend.kv_block_shapes(shape[0], shape[1], shape[2]) == (shape, shape)
            on_device = torch.Generator(self._device).manual_seed(0)
            pool = torch.empty((2, 1 + num_seqs * num_blocks, *shape), dtype=self._dtype, device=self._device)
            key_cache, value_cache = pool.normal_(generator=on_device)

            def attend() -> Tensor:
                scale = heads[2] ** -0.5
                return backend.attention_decode(query, key_cache, value_cache, block_tables, context_lens, scale, None)

            return attend, attend

        shown = f"{counted(num_seqs, 'sequence')} x {context_len}, {_shape(heads)}"
        return KernelCase("attention_decode", shown, prepare, num_bytes=num_seqs * seq_bytes)

    def attention_prefill(self, heads: tuple[int, int, int], window: int | None) -> KernelCase:
        query_lens, context_lens = [1, 17, 64], [1, 40, MAX_CONTEXT]
        context = self._filled_cache(heads, context_lens)
        query = self._random(sum(query_lens), heads[0], heads[2])
        cu_seqlens_q = self._integers([0, 1, 18, 82], torch.int32)

        def prepare(backend: Backend) -> Prepared:
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
        return KernelCase("attention_prefill", shape, prepare)

    def rope(self, heads: tuple[int, int, int]) -> KernelCase:
        query, key = self._random(33, heads[0], heads[2]), self._random(33, heads[1], heads[2])
        positions = self._integers(torch.arange(33) * 7, torch.int64)
        cos, sin = self._rotary_tables(heads[2])

        def prepare(backend: Backend) -> Prepared:
            rotated = query.clone(), key.clone()
            return lambda: backend.rope(*rotated, positions, cos, sin), lambda: torch.cat(rotated, dim=1)

        return KernelCase("rope", f"33 tokens, {_shape(heads)}", prepare)

    def _rotary_tables(self, head_dim: int) -> tuple[Tensor, Tensor]:
        angles = torch.arange(256)[:, None] / 10000 ** (torch.arange(head_dim // 2) / (head_dim // 2))
        return angles.cos().to(self._device), angles.sin().to(self._device)

    def rope_write_kv(self, heads: tuple[int, int, int]) -> KernelCase:
        """Timed over a whole batch of first tokens; what was written is read back through attention."""
        context_lens = [1, 15, 16, 17, 33]
        context = self._filled_cache(heads, context_lens)
        query = self._random(sum(context_lens), heads[0], heads[2])
        last = self._integers(torch.tensor(context_lens).cumsum(0) - 1, torch.int64)
        positions = self._integers(torch.cat([torch.arange(length) for length in context_lens]), torch.int64)
        tables = self._rotary_tables(heads[2])

        def prepare(backend: Backend) -> Prepared:
            caches = context.caches(backend)
            rotated, key = query.clone(), context.key.clone()

            def write() -> None:
                backend.rope_write_kv(rotated, key, context.value, positions, *tables, *caches, context.slot_mapping)

            return write, lambda: torch.cat([rotated, context.decode(backend, caches, rotated[last])])

        return KernelCase("rope_write_kv", f"{sum(context_lens)} tokens, {_shape(heads)}", prepare)

    def copy_blocks(self) -> KernelCase:
        cache = self._random(64, 3, BLOCK_SIZE, 64)
        source = self._integers([1, 2, 63], torch.int64)
        destination = self._integers([40, 1, 5], torch.int64)  # block 1 is read before it is written

        def prepare(backend: Backend) -> Prepared:
            copied = cache.clone()
            return lambda: backend.copy_blocks(copied, source, destination), lambda: copied

        return KernelCase("copy_blocks", "3 of 64 blocks", prepare)

    def rms_norm(self, width: int) -> KernelCase:
        hidden, residual, weight = self._random(33, width), self._random(33, width), self._random(width)

        def prepare(backend: Backend) -> Prepared:
            def norm() -> Tensor:
                # Clones, as a kernel may use its inputs' memory for its results.
                return torch.cat(backend.rms_norm(hidden.clone(), weight, 1e-5, residual.clone()))

            return norm, norm

        return KernelCase("rms_norm", f"33 x {width}", prepare)

    def silu_mul(self, width: int) -> KernelCase:
        gate_up = self._random(33, 2 * width)

        def prepare(backend: Backend) -> Prepared:
            return lambda: backend.silu_mul(gate_up), lambda: backend.silu_mul(gate_up)

        return KernelCase("silu_mul", f"33 x {width}", prepare)

    def linear(self, width: int) -> KernelCase:
        hidden, weight, bias = self._random(33, width), self._random(512, width) / width**0.5, self._random(512)

        def prepare(backend: Backend) -> Prepared:
            return lambda: backend.linear(hidden, weight, bias), lambda: backend.linear(hidden, weight, bias)

        return KernelCase("linear", f"33 x {width} to 512", prepare)

    def packed_linear(self, width: int, bits: int) -> KernelCase:
        """Against the dense product with the very numbers that the packed weights stand for; float32 in and out."""
        from ..kernels.cpu.grouped_weights import pack, quantise
        from ..kernels.cpu.packed_rows import packed_linear_rows

        hidden = torch.randn(33, width, generator=self._generator)
        weights = quantise((torch.randn(512, width, generator=self._generator) / width**0.5).numpy(), bits)
        packed, dense = pack(weights, bits), torch.from_numpy(weights.dense())

        def prepare(backend: Backend) -> Prepared:
            def multiply() -> Tensor:
                is_fast = backend.name == "cpu"
                return packed_linear_rows(hidden, packed, bits) if is_fast else backend.linear(hidden, dense, None)

            return multiply, multiply

        return KernelCase(f"linear int{bits}", f"33 x {width} to 512", prepare)


@dataclass(frozen=True, slots=True, kw_only=True)
class PagedContext:
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
