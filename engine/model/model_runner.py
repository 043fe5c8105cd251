"""Runs one step's batch on the device: copies, forward pass, logits."""

import numpy as np
import torch
from torch import Tensor

from ..batch import Batch
from ..cache.kv_cache import KVCache
from .decoder import Decoder, DecoderInput
from .packed_decoder import PackedDecoder


class ModelRunner:
    """Owns what lies on the device: the decoder's weights and the pool's bytes."""

    def __init__(self, decoder: Decoder | PackedDecoder, kv_cache: KVCache, device: torch.device) -> None:
        self._decoder = decoder
        self._kv_cache = kv_cache
        self._device = device

    def warm_up(self, num_rows: int) -> None:
        """Runs a batch of one sequence in the null block, so that what is compiled on first use is compiled now."""
        rows = np.arange(num_rows)
        self.execute(
            Batch(
                input_ids=np.zeros(num_rows, np.int64),
                positions=rows,
                slot_mapping=np.zeros(num_rows, np.int64),
                block_tables=np.zeros((1, num_rows), np.int32),
                context_lens=np.array([num_rows], np.int32),
                cu_seqlens_q=np.array([0] if num_rows == 1 else [0, num_rows], np.int32),
                logits_rows=rows[-1:],
                num_decodes=int(num_rows == 1),
                max_query_len=0 if num_rows == 1 else num_rows,
            )
        )

    @torch.inference_mode()
    def execute(self, batch: Batch) -> Tensor:
        """float32 logits [num_logits, vocab] of the batch's wanted rows; its KV is written when this returns."""
        if batch.copies:
            self._kv_cache.copy_blocks(batch.copies)
        inputs = DecoderInput.from_batch(batch, self._device)
        return self._decoder.forward(inputs, self._kv_cache.key_caches, self._kv_cache.value_caches)
