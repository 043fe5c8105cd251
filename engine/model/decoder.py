"""The forward pass of every supported family: one decoder, driven by a `ModelConfig`."""

from copy import copy
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import embedding

from ...kernels.backend import Backend
from ...kernels.shared_run import SharedRun
from ..batch import Batch
from .config import ModelConfig
from .rope import cos_sin_tables
from .weights import DecoderWeights, LayerWeights

LOOKED_AT = 16  # tokens whose logits tell whether a row is NaN: then all are


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderInput:
    """`Batch`'s arrays as tensors on the model's device, under the same names; its copies are done before this."""

    input_ids: Tensor  # [num_tokens] int64
    positions: Tensor  # [num_tokens] int64
    slot_mapping: Tensor  # [num_tokens] int64
    block_tables: Tensor  # [S, max_blocks] int32
    context_lens: Tensor  # [S] int32
    cu_seqlens_q: Tensor  # [S - num_decodes + 1] int32
    logits_rows: Tensor  # [num_logits] int64
    num_decodes: int
    max_query_len: int
    max_context_len: int  # of context_lens, known here without asking the device
    shared_runs: tuple[SharedRun, ...] = ()  # of the sequences that decode, to be read once

    @classmethod
    def from_batch(
        cls, batch: Batch, device: torch.device | str = "cpu", shared_runs: tuple[SharedRun, ...] = ()
    ) -> "DecoderInput":
        """On the CPU the tensors share the arrays' memory."""

        def tensor(array: object) -> Tensor:
            on_cpu = torch.as_tensor(array)
            return on_cpu if on_cpu.device == torch.device(device) else on_cpu.to(device)

        return cls(
            input_ids=tensor(batch.input_ids),
            positions=tensor(batch.positions),
            slot_mapping=tensor(batch.slot_mapping),
            block_tables=tensor(batch.block_tables),
            context_lens=tensor(batch.context_lens),
            cu_seqlens_q=tensor(batch.cu_seqlens_q),
            logits_rows=tensor(batch.logits_rows),
            num_decodes=batch.num_decodes,
            max_query_len=batch.max_query_len,
            max_context_len=int(batch.context_lens.max(initial=0)),
            shared_runs=shared_runs,
        )


class Decoder:
    """Token ids in, next-token logits out; keys and values go into the paged caches that the caller owns.

    Weights and caches share one dtype and one device. The rotary tables hold `num_positions` and grow when a context
    gets longer: windows of a million positions are promised more often than used.
    """

    path_rows = (1, 128)  # for each set of kernels that a step may take, a number of rows that takes it

    def __init__(self, config: ModelConfig, weights: DecoderWeights, backend: Backend, num_positions: int) -> None:
        self.config = config
        self.weights = weights
        self.backend = backend
        self.scale = config.head_dim**-0.5
        self.cos, self.sin = self._rotary_tables(num_positions)

    def truncated(self, num_layers: int) -> "Decoder":
        """The same with its first layers alone, and behind them the head's first tokens: to find a layer's fault."""
        shorter = copy(self)
        shorter.weights = replace(
            self.weights, layers=self.weights.layers[:num_layers], head=self.weights.head[:LOOKED_AT]
        )
        return shorter

    @torch.inference_mode()
    def forward(
        self,
        inputs: DecoderInput,
        key_caches: list[Tensor],  # per layer [num_blocks, *key block shape]
        value_caches: list[Tensor],  # per layer [num_blocks, *value block shape]
    ) -> Tensor:  # [num_logits, vocab] float32
        """Writes the tokens' keys and values into their slots and gives the logits after `inputs.logits_rows`."""
        backend, config, weights = self.backend, self.config, self.weights
        if inputs.max_context_len > len(self.cos):
            self.cos, self.sin = self._rotary_tables(max(inputs.max_context_len, 2 * len(self.cos)))
        hidden = embedding(inputs.input_ids, weights.embedding)
        residual: Tensor | None = None
        last = len(weights.layers) - 1
        if not weights.layers:
            hidden = hidden[inputs.logits_rows]
        for index, layer in enumerate(weights.layers):
            normed, residual = backend.rms_norm(hidden, layer.attention_norm, config.rms_norm_eps, residual)
            attended = self._attention(index, layer, normed, inputs, key_caches[index], value_caches[index])
            if index == last:
                # Nothing after the last layer's keys and values looks at the other rows.
                if len(inputs.logits_rows) == 0:
                    return attended.new_empty((0, config.vocab_size), dtype=torch.float32)
                attended, residual = attended[inputs.logits_rows], residual[inputs.logits_rows]
            hidden = backend.linear(attended, layer.output, layer.output_bias)
            normed, residual = backend.rms_norm(hidden, layer.mlp_norm, config.rms_norm_eps, residual)
            gated = backend.silu_mul(backend.linear(normed, layer.gate_up, layer.gate_up_bias))
            hidden = backend.linear(gated, layer.down, layer.down_bias)
        normed, _ = backend.rms_norm(hidden, weights.norm, config.rms_norm_eps, residual)
        return backend.linear(normed, weights.head, None).float()

    def _rotary_tables(self, num_positions: int) -> tuple[Tensor, Tensor]:  # [num_positions, head_dim / 2] each
        return cos_sin_tables(self.config.rope, self.config.head_dim, num_positions, self.weights.embedding.device)

    def _attention(
        self,
        index: int,
        layer: LayerWeights,
        normed: Tensor,  # [T, hidden_size]
        inputs: DecoderInput,
        key_cache: Tensor,
        value_cache: Tensor,
    ) -> Tensor:  # [T, query_width]
        backend, config = self.backend, self.config
        qkv = backend.linear(normed, layer.qkv, layer.qkv_bias).view(len(normed), -1, config.head_dim)
        value_start = config.num_heads + config.num_kv_heads
        query, key, value = qkv[:, : config.num_heads], qkv[:, config.num_heads : value_start], qkv[:, value_start:]
        if layer.query_norm is not None and layer.key_norm is not None:
            query, _ = backend.rms_norm(query, layer.query_norm, config.rms_norm_eps)
            key, _ = backend.rms_norm(key, layer.key_norm, config.rms_norm_eps)
        slots = inputs.slot_mapping
        if config.nope[index]:
            backend.write_kv(key, value, key_cache, value_cache, slots)
        else:
            rotary = (inputs.positions, self.cos, self.sin)
            backend.rope_write_kv(query, key, value, *rotary, key_cache, value_cache, slots)

        decodes, parts = inputs.num_decodes, []
        window = config.windows[index]
        tables, lens = inputs.block_tables, inputs.context_lens
        if decodes:
            own = (query[:decodes], key_cache, value_cache, tables[:decodes], lens[:decodes], self.scale, window)
            runs = inputs.shared_runs
            parts.append(backend.attention_prefix(*own, runs) if runs else backend.attention_decode(*own))
        if decodes < len(query):
            parts.append(
                backend.attention_prefill(
                    query[decodes:],
                    key_cache,
                    value_cache,
                    tables[decodes:],
                    lens[decodes:],
                    inputs.cu_seqlens_q,
                    inputs.max_query_len,
                    self.scale,
                    window,
                )
            )
        attended = parts[0] if len(parts) == 1 else torch.cat(parts)
        return attended.flatten(1)
