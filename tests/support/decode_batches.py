"""Steps in which every sequence decodes, and a cache that they find something in."""

import numpy as np
import torch
from numpy.typing import NDArray

from paged_chat.engine.batch import Batch
from paged_chat.engine.cache.kv_cache import KVCache
from paged_chat.engine.model.loader import LoadedModel

BLOCK_SIZE = 16


def decode_batch(
    token_ids: NDArray[np.int64],  # [S]
    block_tables: NDArray[np.int32],  # [S, columns], padded with 0
    context_lens: NDArray[np.int64],  # [S], the token included
    logits_rows: NDArray[np.int64] | None = None,  # all of them where none are named
) -> Batch:
    rows, positions = np.arange(len(context_lens)), context_lens - 1
    blocks = block_tables[rows, positions // BLOCK_SIZE].astype(np.int64)
    return Batch(
        input_ids=token_ids,
        positions=positions,
        slot_mapping=blocks * BLOCK_SIZE + positions % BLOCK_SIZE,
        block_tables=block_tables,
        context_lens=context_lens.astype(np.int32),
        cu_seqlens_q=np.zeros(1, np.int32),
        logits_rows=rows if logits_rows is None else logits_rows,
        num_decodes=len(rows),
        max_query_len=0,
    )


def filled_cache(model: LoadedModel, num_blocks: int) -> KVCache:
    """Random keys and values in every block, the same each time."""
    shape = model.model_config
    cache = KVCache(
        model.backend,
        num_layers=shape.num_layers,
        num_blocks=num_blocks,
        num_kv_heads=shape.num_kv_heads,
        block_size=BLOCK_SIZE,
        head_dim=shape.head_dim,
        dtype=model.dtype,
        device=model.device,
    )
    cache.pool.copy_(torch.randn(cache.pool.shape, generator=torch.Generator().manual_seed(0)))
    return cache
