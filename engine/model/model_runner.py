"""Runs one step's batch on the device: copies, forward pass, logits."""

from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from ...kernels.shared_run import SharedRun
from ..batch import Batch
from ..cache.kv_cache import KVCache
from ..numeric_fault import first_faulty_layer
from ..shared_runs import BlockReads, SharingRule, find_shared_runs
from ..step_logits import StepLogits
from .cuda_graphs import GraphedDecoder, choose_capture
from .decoder import Decoder, DecoderInput
from .packed_decoder import PackedDecoder


class ModelRunner:
    """Owns what lies on the device: the decoder's weights, the pool's bytes, and on a GPU the graphs of its decodes."""

    def __init__(
        self,
        decoder: Decoder | PackedDecoder,
        kv_cache: KVCache,
        device: torch.device,
        *,
        sharing: SharingRule | None = None,
        with_graphs: bool = True,
    ) -> None:
        self._decoder = decoder
        self.sharing = sharing  # when blocks that sequences share are read once for all of them; None for never
        self.block_reads = BlockReads()
        self._kv_cache = kv_cache
        self._device = device
        self._graphs = self._graphed(decoder) if with_graphs and isinstance(decoder, Decoder) else None

    def _graphed(self, decoder: Decoder) -> GraphedDecoder | None:
        capture = choose_capture(self._device, decoder.backend.name)
        if capture is None:
            return None
        return GraphedDecoder(
            self._forward,
            capture,
            self._device,
            block_size=self._block_size,
            kept_alive=lambda: (decoder.cos, decoder.sin),
        )

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
        # Kernels start on the current device, wherever their tensors lie.
        with torch.cuda.device(self._device) if self._device.type == "cuda" else nullcontext():
            if batch.copies:
                self._kv_cache.copy_blocks(batch.copies)
            # A graph is bound to its shapes, and what is shared changes: there every sequence reads its own context.
            logits = self._graphs.run(batch) if self._graphs is not None else None
            if logits is not None:
                return logits
            runs = self._shared_runs(batch)
            self.block_reads.count(runs)
            return self._forward(DecoderInput.from_batch(batch, self._device, runs))

    @torch.inference_mode()
    def find_faulty_layer(self, batch: Batch) -> int | None:
        """The layer, counted from 1, that makes this batch's logits NaN or infinite; None where they aren't.

        0 stands for what is no layer, the embedding or the head. Runs the batch, whose copies are done, a few times
        with ever fewer layers, and looks at every row: a token's fault reaches the others only one layer later.
        """
        inputs = DecoderInput.from_batch(batch, self._device)
        caches = self._kv_cache.key_caches, self._kv_cache.value_caches
        if not StepLogits(self._decoder.forward(inputs, *caches)).faulty_rows:
            return None
        every_row = replace(inputs, logits_rows=torch.arange(len(inputs.input_ids), device=self._device))
        found = first_faulty_layer(
            lambda num_layers: self._decoder.truncated(num_layers).forward(every_row, *caches),
            self._decoder.config.num_layers,
        )
        return found or 0

    @property
    def _block_size(self) -> int:
        return int(self._kv_cache.pool.shape[-1]) // self._decoder.config.kv_width

    def _shared_runs(self, batch: Batch) -> tuple[SharedRun, ...]:
        if self.sharing is None or batch.num_decodes < self.sharing.min_rows:
            return ()
        decodes = slice(batch.num_decodes)
        # The block that a row writes in this step is its own, however many hold it by count.
        num_full = (batch.context_lens[decodes].astype(np.int64) - 1) // self._block_size
        return find_shared_runs(batch.block_tables[decodes], num_full, self.sharing)

    def _forward(self, inputs: DecoderInput) -> Tensor:
        return self._decoder.forward(inputs, self._kv_cache.key_caches, self._kv_cache.value_caches)
