"""From how many rows on dense weights are faster than packed ones on this machine: measured once, on a few layers.

Packed weights are read fast and dense ones multiplied fast, by torch; where they cross depends on the processor. What a
busy machine measures is not believed: then a constant serves, and the next start measures again.
"""

import statistics
import time
from dataclasses import replace

import numpy as np
import torch

from ...kernels import Backend
from ..batch import Batch
from ..cache.kv_cache import KVCache
from .config import ModelConfig
from .decoder import Decoder, DecoderInput
from .packed_arrays import PackedArrays
from .packed_decoder import ManyRows, PackedDecoder
from .packed_weights import PackedWeights

CANDIDATES = (48, 64, 96, 128, 192, 256)
NEVER_FASTER = 512
"""Where dense weights win at no candidate: they still take the longest steps, where attention decides."""
NUM_LAYERS = 3
ROUNDS = 5
MOST_SPREAD = 1.5
"""Of a median from the best time: above, something else was running."""
BLOCK_SIZE = 16


def measure_crossover(
    config: ModelConfig, packed_weights: PackedWeights, dense: Decoder, dtype: torch.dtype
) -> int | None:
    """Rows of a step from which on dense weights should take it; None where the times were too unsteady to tell."""
    few = few_layers(config)
    arrays = PackedArrays(few, few_of(packed_weights, few.num_layers), max(CANDIDATES))
    packed = PackedDecoder(few, arrays, dtype)
    weights = replace(dense.weights, layers=dense.weights.layers[: few.num_layers])
    few_dense = Decoder(few, weights, dense.backend, max(CANDIDATES))
    cache = small_cache(dense.backend, few, 1 + max(CANDIDATES) // BLOCK_SIZE, dtype)
    return cross([_times(packed, few_dense, cache, num_rows) for num_rows in CANDIDATES])


def cross(times: list[tuple[list[float], list[float]]]) -> int | None:
    """times: of packed and of dense weights for each candidate. The first from which on dense ones always win."""
    if not all(is_steady(of_one) for pair in times for of_one in pair):
        return None
    first = NEVER_FASTER
    for num_rows, (packed, dense) in reversed(list(zip(CANDIDATES, times, strict=True))):
        if min(dense) >= min(packed):
            break
        first = num_rows
    return first


def is_steady(times: list[float]) -> bool:
    """Whether nothing else seems to have run."""
    return statistics.median(times) <= MOST_SPREAD * min(times)


def _times(packed: ManyRows, dense: ManyRows, cache: KVCache, num_rows: int) -> tuple[list[float], list[float]]:
    """Seconds for a prompt of so many tokens, in turns."""
    inputs = DecoderInput.from_batch(_prompt(num_rows))
    times: tuple[list[float], list[float]] = ([], [])
    for decoder in (packed, dense):
        decoder.forward(inputs, cache.key_caches, cache.value_caches)
    for _ in range(ROUNDS):
        for decoder, spent in zip((packed, dense), times, strict=True):
            started = time.perf_counter()
            decoder.forward(inputs, cache.key_caches, cache.value_caches)
            spent.append(time.perf_counter() - started)
    return times


def _prompt(num_rows: int) -> Batch:
    """Without logits, for which both read a head of the same size."""
    rows = np.arange(num_rows)
    return Batch(
        input_ids=np.zeros(num_rows, np.int64),
        positions=rows,
        slot_mapping=BLOCK_SIZE + rows,
        block_tables=1 + np.arange(-(-num_rows // BLOCK_SIZE), dtype=np.int32)[None],
        context_lens=np.array([num_rows], np.int32),
        cu_seqlens_q=np.array([0, num_rows], np.int32),
        logits_rows=np.empty(0, np.int64),
        num_decodes=0,
        max_query_len=num_rows,
    )


def small_cache(backend: Backend, config: ModelConfig, num_blocks: int, dtype: torch.dtype) -> KVCache:
    """To measure with."""
    return KVCache(
        backend,
        num_layers=config.num_layers,
        num_blocks=num_blocks,
        num_kv_heads=config.num_kv_heads,
        block_size=BLOCK_SIZE,
        head_dim=config.head_dim,
        dtype=dtype,
        device=torch.device("cpu"),
    )


def few_layers(config: ModelConfig) -> ModelConfig:
    count = min(NUM_LAYERS, config.num_layers)
    return replace(config, num_layers=count, windows=config.windows[:count], nope=config.nope[:count])


def few_of(weights: PackedWeights, num_layers: int) -> PackedWeights:
    """The first layers' weights, without a copy."""
    return replace(
        weights,
        linears=tuple(tensor[:num_layers] for tensor in weights.linears),
        biases=tuple(tensor[:num_layers] for tensor in weights.biases),
        attention_norms=weights.attention_norms[:num_layers],
        mlp_norms=weights.mlp_norms[:num_layers],
        query_norms=weights.query_norms[:num_layers],
        key_norms=weights.key_norms[:num_layers],
    )
