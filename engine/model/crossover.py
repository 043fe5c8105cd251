"""From how many rows on dense weights are faster than packed ones on this machine: measured once, on a few layers.

Packed weights are read fast and dense ones multiplied fast, by torch; where they cross depends on the processor.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from ..batch import Batch
from ..cache.kv_cache import KVCache
from .config import ModelConfig
from .decoder import Decoder, DecoderInput
from .packed_arrays import PackedArrays
from .packed_decoder import ManyRows, PackedDecoder
from .packed_weights import PackedWeights
from .trial import BLOCK_SIZE, Trial, few_layers, few_of, first_win, run_trial, small_cache

CANDIDATES = (48, 64, 96, 128, 192, 256)
NEVER_FASTER = 512
"""Where dense weights win at no candidate: they still take the longest steps, where attention decides."""
NUM_ROUNDS = 5


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
    return cross([_trial(packed, few_dense, cache, num_rows) for num_rows in CANDIDATES])


def cross(trials: Sequence[Trial]) -> int | None:
    """trials: packed weights against dense ones, for each candidate. The first from which on dense ones always win."""
    if not all(trial.is_steady for trial in trials):
        return None
    return first_win(CANDIDATES, trials) or NEVER_FASTER


def _trial(packed: ManyRows, dense: ManyRows, cache: KVCache, num_rows: int) -> Trial:
    """Of a prompt of so many tokens."""
    inputs = DecoderInput.from_batch(_prompt(num_rows))
    caches = (cache.key_caches, cache.value_caches)
    return run_trial(lambda: packed.forward(inputs, *caches), lambda: dense.forward(inputs, *caches), NUM_ROUNDS)


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
