"""When reading blocks once for several rows pays on this machine: measured once, on a few layers of a model.

What is saved grows with the rows and with the blocks that they share; what it costs to put their parts together grows
with the rows alone. So two numbers make the rule: how many rows where they share much, how many blocks where they are
many. Much is 4,096 tokens: by vectors, 8 rows of 1,024 gain no more than is lost in noise, and the rule would be never.
"""

from dataclasses import replace

import numpy as np
import torch

from paged_chat.kernels.cpu.piece_attention import PIECE_BLOCKS

from ...kernels import Backend
from ..batch import Batch
from ..cache.kv_cache import KVCache
from ..shared_runs import SharingRule, find_shared_runs
from .config import ModelConfig
from .decoder import DecoderInput
from .packed_arrays import PackedArrays
from .packed_decoder import PackedDecoder
from .packed_weights import PackedWeights
from .trial import BLOCK_SIZE, Trial, few_layers, few_of, first_win, run_trial, small_cache

USUAL = (4, 32)
"""Rows and blocks where nothing could be measured."""
ROWS, BLOCKS = (2, 3, 4, 6, 8), (32, 64, 128, 256)
"""Candidates; of the one the smallest is looked for at the other's largest. Fewer blocks than these gain 8 rows a
fiftieth, and cost 4 as much (docs/performance.md)."""
NUM_ROUNDS = 9
ANY = SharingRule(min_rows=2, min_blocks=1)


def measure_sharing(
    config: ModelConfig, packed_weights: PackedWeights, dtype: torch.dtype, backend: Backend, shared_terms: int
) -> tuple[int, int] | None:
    """(rows, blocks) from which on sharing was faster, (0, 0) where it never was; None where times were unsteady."""
    few = few_that_share(config)
    num_positions = BLOCK_SIZE * (max(BLOCKS) + 1)
    arrays = PackedArrays(few, few_of(packed_weights, few.num_layers), num_positions)
    decoder = PackedDecoder(few, arrays, dtype, shared_terms=shared_terms)
    cache = small_cache(backend, few, 1 + max(BLOCKS) + max(ROWS), dtype)
    cache.pool.zero_()
    by_rows = [_trial(decoder, cache, num_rows, max(BLOCKS)) for num_rows in ROWS]
    # Most rows with most blocks are measured once, so that the two numbers can't contradict each other.
    by_blocks = [*(_trial(decoder, cache, max(ROWS), num_blocks) for num_blocks in BLOCKS[:-1]), by_rows[-1]]
    if not all(trial.is_steady for trial in (*by_rows, *by_blocks)):
        return None
    return first_win(ROWS, by_rows) or 0, first_win(BLOCKS, by_blocks) or 0


def few_that_share(config: ModelConfig) -> ModelConfig:
    """The first layers, without their windows: where one hides a context's beginning, nothing is shared or lost."""
    few = few_layers(config)
    return replace(few, windows=(None,) * few.num_layers)


def rule_of(measured: tuple[int, int], *, uses_tiles: bool) -> SharingRule | None:
    """None where sharing never pays. Vectors share whole pieces."""
    num_rows, num_blocks = measured
    if num_rows == 0 or num_blocks == 0:
        return None
    return SharingRule(num_rows, num_blocks, unit_blocks=1 if uses_tiles else PIECE_BLOCKS)


def _trial(decoder: PackedDecoder, cache: KVCache, num_rows: int, num_blocks: int) -> Trial:
    """Of one step, without sharing and with it."""
    batch = _batch(num_rows, num_blocks)
    runs = find_shared_runs(batch.block_tables, batch.positions // BLOCK_SIZE, ANY)
    apart, shared = DecoderInput.from_batch(batch), replace(DecoderInput.from_batch(batch), shared_runs=runs)
    caches = (cache.key_caches, cache.value_caches)
    return run_trial(lambda: decoder.forward(apart, *caches), lambda: decoder.forward(shared, *caches), NUM_ROUNDS)


def _batch(num_rows: int, num_blocks: int) -> Batch:
    """Rows that share so many blocks and decode their first token after them; without logits."""
    tables = np.empty((num_rows, num_blocks + 1), np.int32)
    tables[:, :-1] = 1 + np.arange(num_blocks)
    tables[:, -1] = 1 + max(BLOCKS) + np.arange(num_rows)
    positions = np.full(num_rows, BLOCK_SIZE * num_blocks)
    return Batch(
        input_ids=np.zeros(num_rows, np.int64),
        positions=positions,
        slot_mapping=tables[:, -1].astype(np.int64) * BLOCK_SIZE,
        block_tables=tables,
        context_lens=(positions + 1).astype(np.int32),
        cu_seqlens_q=np.zeros(1, np.int32),
        logits_rows=np.empty(0, np.int64),
        num_decodes=num_rows,
        max_query_len=0,
    )
