"""A decoder on the CPU whose weights are packed: one compiled call for a step of few rows."""

import numpy as np
import torch
from torch import Tensor

from paged_chat.kernels.cpu.arrays import KINDS, address, stride_bytes
from paged_chat.kernels.cpu.packed_linear import GROUP
from paged_chat.kernels.cpu.packed_step import compile_step, num_stages
from paged_chat.kernels.cpu.paged_attention import PART_HEADER, ROWS_BY_PIECE, count_pieces, heads_at_once
from paged_chat.kernels.cpu.simd import LANES
from paged_chat.kernels.cpu.team import shared_team
from paged_chat.kernels.cpu.work_sharing import new_counters

from .config import ModelConfig
from .decoder import Decoder, DecoderInput
from .packed_weights import HEAD_BITS, PackedWeights
from .rope import cos_sin_tables

LEVELS = 2  # bytes of an activation
MAX_PACKED_ROWS = 96
"""With dense weights beside the packed ones: above, torch's matrix products are faster (docs/performance.md)."""


class PackedDecoder:
    """Token ids in, next-token logits out, as `Decoder`; sums are exact or in a fixed order.

    A token's logits are the same to the bit whatever is computed beside it, as long as every step is packed. `dense`,
    where it is given, takes steps of many rows: faster, and rounded differently.
    """

    def __init__(
        self, config: ModelConfig, weights: PackedWeights, num_positions: int, dtype: torch.dtype, dense: Decoder | None
    ) -> None:
        self.config = config
        self._dense = dense
        self._embedding = weights.embedding
        group = config.num_heads // config.num_kv_heads
        at_once = heads_at_once(group, config.head_dim)
        self._step = compile_step(config.head_dim, group, at_once, KINDS[dtype], weights.bits, HEAD_BITS, LEVELS)
        self._windows = np.array([window or 0 for window in config.windows], dtype=np.int64)
        self._scale = np.float32(config.head_dim**-0.5)
        self._cos, self._sin = cos_sin_tables(config.rope, config.head_dim, num_positions)
        self._linears = tuple(tensor.numpy() for tensor in weights.linears)
        self._head = weights.head.numpy()
        # In the order of the step's parameters.
        self._parameters = (
            self._linears,
            tuple(tensor.numpy() for tensor in weights.biases),
            tuple(
                tensor.numpy()
                for tensor in (weights.attention_norms, weights.mlp_norms, weights.query_norms, weights.key_norms)
            ),
            weights.norm.numpy(),
            self._head,
            self._windows,
            ~np.array(config.nope, dtype=np.bool_),
        )

    def forward(
        self,
        inputs: DecoderInput,
        key_caches: list[Tensor],  # per layer [num_blocks, K, D, 16]
        value_caches: list[Tensor],  # per layer [num_blocks, K, 16, D]
    ) -> Tensor:  # [num_logits, vocab] float32
        """Writes the tokens' keys and values into their slots and gives the logits after `inputs.logits_rows`."""
        num_rows = len(inputs.input_ids)
        if self._dense is not None and num_rows > MAX_PACKED_ROWS:
            return self._dense.forward(inputs, key_caches, value_caches)
        config = self.config
        if inputs.max_context_len > len(self._cos):
            num_positions = max(inputs.max_context_len, 2 * len(self._cos))
            self._cos, self._sin = cos_sin_tables(config.rope, config.head_dim, num_positions)
        # A helper thread may still look at a finished step's arguments, so no step reuses another's arrays.
        positions = inputs.positions.numpy().copy()
        context_lens = positions + 1
        counts = np.concatenate([np.ones(inputs.num_decodes, np.int64), np.diff(inputs.cu_seqlens_q.numpy())])
        windows = self._windows if self._windows.any() else self._windows[:1]
        piece_starts = np.stack([count_pieces(context_lens, int(window)) for window in windows])
        num_pieces = int(piece_starts[:, -1].max()) if num_rows <= ROWS_BY_PIECE else 0
        width, query_width, inner = config.hidden_size, config.query_width, config.intermediate_size
        widest = max(width, query_width, inner)
        scratch = np.empty((num_rows, widest // GROUP), np.float32)
        logits = np.empty((len(inputs.logits_rows), LANES * self._head.shape[0]), np.float32)
        shared_team().run(
            self._step,
            new_counters(num_stages(config.num_layers)),
            torch.nn.functional.embedding(inputs.input_ids, self._embedding).float().numpy(),
            positions,
            inputs.slot_mapping.numpy(),
            np.repeat(np.arange(len(counts)), counts),
            inputs.block_tables.numpy(),
            context_lens,
            piece_starts,
            inputs.logits_rows.numpy(),
            logits,
            *self._parameters,
            self._cos.numpy(),
            self._sin.numpy(),
            np.float32(config.rms_norm_eps),
            self._scale,
            address(key_caches[0]),
            address(key_caches[1]) - address(key_caches[0]) if config.num_layers > 1 else np.uint64(0),
            stride_bytes(key_caches[0], 0),
            address(value_caches[0]) - address(key_caches[0]),
            np.empty((num_rows, LEVELS, widest), np.int8),
            scratch,
            np.empty_like(scratch),
            np.empty((num_rows, LANES * self._linears[0].shape[1]), np.float32),
            np.empty((num_rows, query_width), np.float32),
            np.zeros((num_rows, LANES * self._linears[1].shape[1]), np.float32),
            np.empty((num_rows, 2 * inner), np.float32),
            np.empty((num_pieces, config.num_heads, PART_HEADER + config.head_dim), np.float32),
        )
        return torch.from_numpy(logits)[:, : config.vocab_size]
