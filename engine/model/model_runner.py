"""Runs one step's batch on the device: copies, forward pass, logits."""

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

    @torch.inference_mode()
    def execute(self, batch: Batch) -> Tensor:
        """float32 logits [num_logits, vocab] of the batch's wanted rows; its KV is written when this returns."""
        if batch.copies:
            self._kv_cache.copy_blocks(batch.copies)
        inputs = DecoderInput.from_batch(batch, self._device)
        return self._decoder.forward(inputs, self._kv_cache.key_caches, self._kv_cache.value_caches)
