"""A decoder on the CPU whose weights are packed: one compiled call for a step of few rows."""

from copy import copy
from typing import Protocol, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from paged_chat.kernels.cpu import bfloat16
from paged_chat.kernels.cpu.arrays import KINDS
from paged_chat.kernels.cpu.byte_tiles import AT_ONCE, has_byte_tiles
from paged_chat.kernels.cpu.packed_step import compile_step, num_stages
from paged_chat.kernels.cpu.paged_attention import ROWS_BY_PIECE
from paged_chat.kernels.cpu.piece_attention import PART_HEADER, heads_at_once
from paged_chat.kernels.cpu.prompt_attention import plan_prompts
from paged_chat.kernels.cpu.row_spans import CAN_BE_COARSE, RowSpans, chunks_within, coarse_prompts, exact_rows
from paged_chat.kernels.cpu.simd import LANES
from paged_chat.kernels.cpu.team import default_threads, shared_team
from paged_chat.kernels.cpu.tile_rows import ACTIVATION_BYTES, GROUP, middle_of
from paged_chat.kernels.cpu.work_sharing import new_counters

from .config import ModelConfig
from .decoder import DecoderInput
from .packed_arrays import MAX_EXACT_ROWS, PackedArrays, StepRows, cache_addresses, plan_for
from .packed_weights import HEAD_BITS
from .step_memory import StepMemory

MAX_PACKED_ROWS = 96
"""With dense weights beside the packed ones: above, torch's matrix products are faster (docs/performance.md)."""


def can_round_prompts(dtype: torch.dtype) -> bool:
    """Whether rounding long prompts gains something on this processor, over a cache of this dtype."""
    return dtype == torch.bfloat16 and CAN_BE_COARSE


class ManyRows(Protocol):
    """What computes a step of many rows."""

    @property
    def path_rows(self) -> tuple[int, ...]:
        """As `Decoder.path_rows`."""
        ...

    def truncated(self, num_layers: int) -> Self:
        """As `Decoder.truncated`."""
        ...

    def forward(self, inputs: DecoderInput, key_caches: list[Tensor], value_caches: list[Tensor]) -> Tensor: ...


class PackedDecoder:
    """Token ids in, next-token logits out, as `Decoder`; sums are exact or in a fixed order.

    A token's logits are the same to the bit whatever is computed beside it, as long as every step is packed.
    `many_rows`, where it is given, takes steps of at least so many rows: faster, and rounded differently. So is what
    an input says that sequences share, where `shared_terms` isn't 0 and matrix tiles read it.
    """

    def __init__(
        self,
        config: ModelConfig,
        weights: PackedArrays,
        dtype: torch.dtype,
        many_rows: ManyRows | None = None,
        min_many_rows: int = MAX_PACKED_ROWS + 1,
        shared_terms: int = 0,
        *,
        rounds_prompts: bool = False,
    ) -> None:
        self.config = config
        self._many_rows = many_rows
        self._min_many_rows = min_many_rows
        group = config.num_heads // config.num_kv_heads
        at_once = heads_at_once(group, config.head_dim)
        self._shares_by_tiles = shared_terms > 0
        self._leaves_fine = rounds_prompts and can_round_prompts(dtype)
        self._has_dots = self._leaves_fine and bfloat16.has_dots()
        self._step = compile_step(
            config.head_dim,
            group,
            at_once,
            KINDS[dtype],
            weights.bits,
            HEAD_BITS,
            shared_terms,
            int(has_byte_tiles()),
            int(self._has_dots),
            middle_of(weights.bits) if self._leaves_fine else 0,
        )
        self._weights = weights
        self._memory = StepMemory()
        others = () if many_rows is None else many_rows.path_rows
        self.path_rows = (1, *(rows for rows in others if rows >= min_many_rows))

    def truncated(self, num_layers: int) -> "PackedDecoder":
        """As `Decoder.truncated`."""
        shorter = copy(self)
        shorter._weights = self._weights.truncated(num_layers)
        shorter._many_rows = self._many_rows and self._many_rows.truncated(num_layers)
        return shorter

    def forward(
        self,
        inputs: DecoderInput,
        key_caches: list[Tensor],  # per layer [num_blocks, K, D, 16]
        value_caches: list[Tensor],  # per layer [num_blocks, K, 16, D]
    ) -> Tensor:  # [num_logits, vocab] float32
        """Writes the tokens' keys and values into their slots and gives the logits after `inputs.logits_rows`."""
        num_rows = len(inputs.input_ids)
        if self._many_rows is not None and num_rows >= self._min_many_rows:
            return self._many_rows.forward(inputs, key_caches, value_caches)
        config, weights = self.config, self._weights
        rows = StepRows.from_input(inputs)
        plan = plan_for(inputs.shared_runs, config, num_rows, uses_tiles=self._shares_by_tiles)
        shares = weights.shares(inputs.max_context_len)
        piece_starts = weights.piece_starts(rows.context_lens, plan.own_starts, shares)
        num_pieces = int(piece_starts[:, -1].max()) if num_rows <= ROWS_BY_PIECE else 0
        prompts, spans = self._long_prompts(rows, num_rows, inputs.num_decodes)
        logits_rows = inputs.logits_rows.numpy()
        last_spans = spans.last_spans(logits_rows)
        width, query_width, inner = config.hidden_size, config.query_width, config.intermediate_size
        num_padded_rows = -(-num_rows // AT_ONCE) * AT_ONCE
        widest = max(width, query_width)
        part = (config.num_heads, PART_HEADER + config.head_dim)
        scratch = self._memory.arrays(
            [
                ((num_padded_rows, ACTIVATION_BYTES, widest), np.int8),
                ((num_rows, widest // GROUP), np.float32),
                ((num_rows, widest // GROUP), np.float32),
                ((num_padded_rows, ACTIVATION_BYTES, inner), np.int8),
                ((num_rows, inner // GROUP), np.float32),
                ((num_rows, inner // GROUP), np.float32),
                ((num_rows, LANES * weights.num_tiles("qkv")), np.float32),
                ((num_rows, query_width), np.float32),
                ((num_rows, LANES * weights.num_tiles("output")), np.float32),
                ((num_pieces, *part), np.float32),
                ((len(plan.members), *part), np.float32),
            ]
        )
        scratch[-3][:] = 0.0  # what the first layer's norm adds
        logits = np.empty((len(logits_rows), weights.padded_vocab), np.float32)
        shared_team().run(
            self._step,
            new_counters(num_stages(config.num_layers)),
            weights.embed(inputs.input_ids, num_rows),
            rows.positions,
            rows.slots,
            rows.table_rows,
            rows.block_tables,
            rows.context_lens,
            piece_starts,
            plan.arrays,
            shares,
            prompts,
            chunks_within(prompts, last_spans),
            spans.spans,
            last_spans,
            spans.are_coarse,
            logits_rows,
            logits,
            *weights.parameters(inputs.max_context_len),
            *cache_addresses(key_caches, value_caches),
            *scratch,
        )
        return torch.from_numpy(logits)[:, : config.vocab_size]

    def _long_prompts(self, rows: StepRows, num_rows: int, num_decodes: int) -> tuple[NDArray[np.int64], RowSpans]:
        """The chunks of `plan_prompts` for prompts that are attended to by bfloat16, and which rows are coarse."""
        config, is_long = self.config, num_rows > MAX_EXACT_ROWS
        counts = rows.counts[num_decodes:]
        chunks = plan_prompts(
            counts if is_long and self._has_dots else counts[:0],
            num_decodes,
            config.num_heads // config.num_kv_heads,
            config.num_kv_heads,
            default_threads(),
        )
        if not is_long or not self._leaves_fine:
            return chunks, exact_rows(num_rows)
        return chunks, coarse_prompts(counts, num_decodes, max(config.hidden_size, config.intermediate_size))
