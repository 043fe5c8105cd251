"""Does a way to compute a step give what the reference gives, on this very machine? Asked on a small random model.

The small model has the real one's heads, norms, biases and rotary positions, so it runs the very kernels that the real
one will: what is compiled in depends on these alone. Two prompts are computed in chunks, together and one token at a
time, over scattered blocks, which takes every kernel of a path through its ends of blocks and pieces.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from paged_chat.kernels.cpu.grouped_weights import quantise

from ...kernels import choose_backend
from ..batch import Batch
from ..cache.kv_cache import KVCache
from ..shared_runs import SharingRule, find_shared_runs
from .config import ModelConfig
from .decoder import Decoder, DecoderInput
from .packed_arrays import PackedArrays
from .packed_decoder import ManyRows, PackedDecoder
from .packed_weights import HEAD_BITS, LINEARS, from_tensors, pack_weights
from .tiled_decoder import MIN_TILED_ROWS, SHARED_TERMS, TiledDecoder
from .weights import DecoderWeights, FusedTensor, fused_tensors

PathName = Literal["packed step", "rounded prompts", "matrix tiles", "dense step"]

# Largest error that rounding explains, relative to the largest value of the reference's result.
TOLERANCES = {torch.float32: 1e-4, torch.bfloat16: 3e-2, torch.float16: 4e-3}
PACKED_TOLERANCE = 2e-3  # packed layers round their activations to 16 bits, whatever the dtype
NUM_LAYERS, NUM_KV_HEADS, WIDTH, INNER, VOCAB = 2, 2, 64, 96, 40
BLOCK_SIZE = 16
ANY_RUN = SharingRule(min_rows=2, min_blocks=1)
CPU = torch.device("cpu")

# The steps, each of (sequence, its first new token, how many): a prompt, its second chunk over what is there, a decode
# beside another prompt, two decodes, and two of which one begins with the other's full blocks.
STEPS = (
    ((0, 0, 160),),
    ((0, 160, 140),),
    ((0, 300, 1), (1, 0, 24)),
    ((0, 301, 1), (1, 24, 1)),
    ((0, 302, 1), (2, 288, 1)),
)
LENGTHS = (303, 25, 289)
NUM_COMMON_BLOCKS = 18  # of sequences 0 and 2


@dataclass(frozen=True, slots=True, kw_only=True)
class PathCheck:
    """How far a path is off, relative to the reference's largest logit; `fault` is what it raised, and then no error.

    Times are those of all steps, once compiled.
    """

    path: PathName
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

    def __str__(self) -> str:
        if self.fault is not None:
            return f"{self.path} ({self.shape}) can't run: {self.fault}"
        return f"{self.path} ({self.shape}) is off by {self.relative_error:.1e}; rounding explains {self.tolerance:g}"


def check_path(path: PathName, config: ModelConfig, dtype: torch.dtype, bits: int) -> PathCheck:
    """bits: of packed weights; a dense path ignores them."""
    small = _small(config)
    tolerance = TOLERANCES[dtype] if path == "dense step" else max(TOLERANCES[dtype], PACKED_TOLERANCE)
    shape = describe(config, dtype, None if path == "dense step" else bits)
    tensors = dict(_random_tensors(small))
    is_dense = path == "dense step"
    truth = {name: value.to(dtype) for name, value in tensors.items()} if is_dense else _as_packed(tensors, bits)
    true_weights = DecoderWeights.from_tensors(small, truth)
    decoder: ManyRows
    try:
        if is_dense:
            decoder = Decoder(small, true_weights, choose_backend("cpu", CPU), max(LENGTHS))
        else:
            decoder = _packed_decoder(path, small, tensors, dtype, bits)
        _run(decoder, small, "cpu", dtype)  # compiles
        result, time_ms = _run(decoder, small, "cpu", dtype)
    except Exception as error:  # whatever a broken kernel raises is what this reports
        first_line = next(iter(str(error).splitlines()), "")
        return PathCheck(path=path, shape=shape, tolerance=tolerance, fault=f"{type(error).__name__}: {first_line}")
    reference = Decoder(small, true_weights, choose_backend("reference", CPU), max(LENGTHS))
    expected, reference_ms = _run(reference, small, "reference", dtype if is_dense else torch.float32)
    difference = (result - expected).abs().max().item()
    return PathCheck(
        path=path,
        shape=shape,
        tolerance=tolerance,
        relative_error=difference / expected.abs().max().item(),
        time_ms=time_ms,
        reference_ms=reference_ms,
    )


def describe(config: ModelConfig, dtype: torch.dtype, bits: int | None) -> str:
    """What kernels are compiled for, in words."""
    heads = f"heads {config.num_heads}/{config.num_kv_heads} x {config.head_dim}"
    return ", ".join([*([] if bits is None else [f"int{bits}"]), heads, str(dtype).removeprefix("torch.")])


def _small(config: ModelConfig) -> ModelConfig:
    has_windows, has_nope = any(config.windows), any(config.nope)
    return replace(
        config,
        num_layers=NUM_LAYERS,
        num_heads=NUM_KV_HEADS * (config.num_heads // config.num_kv_heads),
        num_kv_heads=NUM_KV_HEADS,
        hidden_size=WIDTH,
        intermediate_size=INNER,
        vocab_size=VOCAB,
        tie_embeddings=False,
        windows=(None, 40 if has_windows else None),
        nope=(False, has_nope),
    )


def _random_tensors(config: ModelConfig) -> Iterator[tuple[str, Tensor]]:
    """Sized so that what each layer adds is about as large as what it gets."""
    generator = torch.Generator().manual_seed(0)
    for tensor in fused_tensors(config):
        values = torch.randn(tensor.shape, generator=generator)
        if "norm" in tensor.name:
            yield tensor.name, 1 + 0.1 * values
        elif len(tensor.shape) == 1:
            yield tensor.name, 0.1 * values
        else:
            yield tensor.name, values / tensor.shape[1] ** 0.5


def _packed_decoder(
    path: PathName, config: ModelConfig, tensors: dict[str, Tensor], dtype: torch.dtype, bits: int
) -> PackedDecoder:
    fused: Iterator[tuple[FusedTensor, Tensor]] = ((tensor, tensors[tensor.name]) for tensor in fused_tensors(config))
    packed = from_tensors(bits, pack_weights(config, bits, fused, lambda _: None))
    arrays = PackedArrays(config, packed, max(LENGTHS))
    if path == "matrix tiles":
        tiled = TiledDecoder(config, arrays, dtype)
        return PackedDecoder(config, arrays, dtype, tiled, MIN_TILED_ROWS, SHARED_TERMS)
    return PackedDecoder(config, arrays, dtype, rounds_prompts=path == "rounded prompts")


def _as_packed(tensors: dict[str, Tensor], bits: int) -> dict[str, Tensor]:
    """The values that packed weights stand for."""

    def rounded(name: str, value: Tensor) -> Tensor:
        role = name.rpartition(".")[2]
        if role in LINEARS or role == "head":
            return torch.from_numpy(quantise(value.numpy(), HEAD_BITS if role == "head" else bits).dense())
        return value.bfloat16().float() if role == "embedding" else value

    return {name: rounded(name, value) for name, value in tensors.items()}


@torch.inference_mode()
def _run(
    decoder: ManyRows, config: ModelConfig, backend: str, dtype: torch.dtype
) -> tuple[Tensor, float]:  # [logits, vocab], milliseconds
    """All steps, over blocks that lie in no order and are full of NaN at first."""
    widths = [-(-length // BLOCK_SIZE) for length in LENGTHS]
    cache = KVCache(
        choose_backend(backend, CPU),
        num_layers=config.num_layers,
        num_blocks=1 + sum(widths),
        num_kv_heads=config.num_kv_heads,
        block_size=BLOCK_SIZE,
        head_dim=config.head_dim,
        dtype=dtype,
        device=CPU,
    )
    cache.pool.fill_(torch.nan)
    block_ids = 1 + np.random.default_rng(0).permutation(sum(widths))
    tables = np.zeros((len(LENGTHS), max(widths)), np.int32)
    for table, width, own in zip(tables, widths, np.split(block_ids, np.cumsum(widths)[:-1]), strict=True):
        table[:width] = own
    tables[2, :NUM_COMMON_BLOCKS] = tables[0, :NUM_COMMON_BLOCKS]
    started = time.perf_counter()
    logits = []
    for step in STEPS:
        batch = _batch(step, tables)
        runs = find_shared_runs(batch.block_tables[: batch.num_decodes], _num_full(batch), ANY_RUN)
        inputs = DecoderInput.from_batch(batch, shared_runs=runs)
        logits.append(decoder.forward(inputs, cache.key_caches, cache.value_caches))
    return torch.cat(logits), (time.perf_counter() - started) * 1e3


def _num_full(batch: Batch) -> np.ndarray:
    """Blocks of each decode that are full."""
    return (batch.context_lens[: batch.num_decodes].astype(np.int64) - 1) // BLOCK_SIZE


def _batch(step: tuple[tuple[int, int, int], ...], tables: np.ndarray) -> Batch:
    """Logits after each sequence's last eight new tokens, or as many as there are."""
    positions = [np.arange(first, first + count) for _, first, count in step]
    slots = [
        tables[sequence][rows // BLOCK_SIZE].astype(np.int64) * BLOCK_SIZE + rows % BLOCK_SIZE
        for (sequence, _, _), rows in zip(step, positions, strict=True)
    ]
    counts = np.array([count for _, _, count in step])
    num_decodes = int((counts == 1).sum())
    ends = np.cumsum(counts)
    return Batch(
        input_ids=np.concatenate(positions) * 7 % VOCAB,
        positions=np.concatenate(positions),
        slot_mapping=np.concatenate(slots),
        block_tables=tables[[sequence for sequence, _, _ in step]],
        context_lens=np.array([first + count for _, first, count in step], np.int32),
        cu_seqlens_q=np.concatenate([[0], np.cumsum(counts[num_decodes:])]).astype(np.int32),
        logits_rows=np.concatenate(
            [np.arange(end - min(count, 8), end) for end, count in zip(ends, counts, strict=True)]
        ),
        num_decodes=num_decodes,
        max_query_len=int(counts[num_decodes:].max(initial=0)),
    )
