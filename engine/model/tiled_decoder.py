"""A decoder with packed weights for steps of many rows, on processors that multiply matrix tiles (AMX)."""

from copy import copy

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from paged_chat.kernels.cpu import amx
from paged_chat.kernels.cpu.amx import COLUMNS, ROWS
from paged_chat.kernels.cpu.amx_attention import plan_chunks
from paged_chat.kernels.cpu.amx_layer import count_panels
from paged_chat.kernels.cpu.amx_layout import tiles_for
from paged_chat.kernels.cpu.amx_linear import count_blocks
from paged_chat.kernels.cpu.amx_step import compile_step, num_stages
from paged_chat.kernels.cpu.arrays import KINDS
from paged_chat.kernels.cpu.paged_attention import ROWS_BY_PIECE
from paged_chat.kernels.cpu.piece_attention import PART_HEADER, heads_at_once
from paged_chat.kernels.cpu.team import default_threads, shared_team
from paged_chat.kernels.cpu.tile_rows import ACTIVATION_BYTES, GROUP
from paged_chat.kernels.cpu.work_sharing import new_counters

from .config import ModelConfig
from .decoder import DecoderInput
from .packed_arrays import MAX_EXACT_ROWS, PackedArrays, StepRows, cache_addresses, plan_for
from .packed_weights import HEAD_BITS, linear_shapes

MIN_TILED_ROWS = 12
SHARED_TERMS = amx.EXACT
"""How exactly a decoding row attends to blocks that it shares: to 16 digits, as to those of its own."""


def fits_tiled(config: ModelConfig, dtype: torch.dtype) -> bool:
    """Whether this processor and this shape, which fits the packed step, allow it."""
    return dtype == torch.bfloat16 and config.head_dim % COLUMNS == 0 and amx.has_tiles()


class TiledDecoder:
    """Token ids in, next-token logits out, as `Decoder`."""

    path_rows = (MIN_TILED_ROWS, MAX_EXACT_ROWS + 1)

    def __init__(self, config: ModelConfig, weights: PackedArrays, dtype: torch.dtype) -> None:
        self.config = config
        self._kind = KINDS[dtype]
        self._weights = weights
        self._shapes = amx.tile_shapes()
        self._scratch: dict[str, NDArray[np.uint8]] = {}

    def truncated(self, num_layers: int) -> "TiledDecoder":
        """As `Decoder.truncated`."""
        shorter = copy(self)
        shorter._weights = self._weights.truncated(num_layers)
        return shorter

    def forward(
        self,
        inputs: DecoderInput,
        key_caches: list[Tensor],  # per layer [num_blocks, K, D, 16]
        value_caches: list[Tensor],  # per layer [num_blocks, K, 16, D]
    ) -> Tensor:  # [num_logits, vocab] float32
        """Writes the tokens' keys and values into their slots and gives the logits after `inputs.logits_rows`."""
        config, weights = self.config, self._weights
        num_rows, num_logits, num_decodes = len(inputs.input_ids), len(inputs.logits_rows), inputs.num_decodes
        terms = amx.EXACT if num_rows <= MAX_EXACT_ROWS else amx.FAST
        group = config.num_heads // config.num_kv_heads
        rows, logits_rows = StepRows.from_input(inputs), inputs.logits_rows.numpy()
        plan = plan_for(inputs.shared_runs, config, num_decodes, uses_tiles=True)
        shares = weights.shares(inputs.max_context_len)
        piece_starts = weights.piece_starts(rows.context_lens[:num_decodes], plan.own_starts, shares)
        num_pieces = int(piece_starts[:, -1].max()) if num_decodes <= ROWS_BY_PIECE else 0
        chunks = plan_chunks(rows.counts[num_decodes:], config.num_kv_heads, default_threads())
        chunks[:, 0] += num_decodes
        width, query_width, inner = config.hidden_size, config.query_width, config.intermediate_size
        num_panels = count_panels(num_rows, width, default_threads())
        panel_rows = -(-num_rows // max(num_panels, 1))
        first_logits_group = int(logits_rows.min(initial=_rounded_up(num_rows))) // ROWS
        # Panels have memory of their own, but for the last layer.
        num_scratch_rows = num_rows - ROWS * first_logits_group if num_panels else num_rows
        logits = np.empty((num_logits, weights.padded_vocab), np.float32)
        at_once = heads_at_once(group, config.head_dim)
        shared_team().run(
            compile_step(config.head_dim, group, at_once, self._kind, weights.bits, HEAD_BITS, terms),
            new_counters(num_stages(config.num_layers)),
            weights.embed(inputs.input_ids, _rounded_up(num_rows)),
            rows.positions,
            rows.slots,
            rows.table_rows,
            rows.block_tables,
            rows.context_lens,
            num_decodes,
            piece_starts,
            plan.arrays,
            shares,
            chunks,
            _with_logits(chunks, logits_rows),
            first_logits_group,
            self._blocks(num_rows, terms, default_threads()),
            num_panels,
            self._blocks(panel_rows, terms, 1),
            logits_rows,
            logits,
            config.num_kv_heads,
            *weights.parameters(inputs.max_context_len),
            *cache_addresses(key_caches, value_caches),
            self._shapes,
            self._tiles("activations", num_scratch_rows, width, terms),
            self._tiles("attended", num_rows, query_width, terms),
            self._tiles("gated", num_scratch_rows, inner, terms),
            self._tiles("queries", num_rows + 2 * ROWS, query_width, terms),
            num_rows + ROWS,
            np.empty((num_decodes, query_width), np.float32),
            np.empty((num_logits, ACTIVATION_BYTES, width), np.int8),
            np.empty((num_logits, width // GROUP), np.float32),
            np.empty((num_logits, width // GROUP), np.float32),
            np.empty((num_decodes, query_width), np.float32),
            np.empty((num_pieces, config.num_heads, PART_HEADER + config.head_dim), np.float32),
            np.empty((len(plan.members), config.num_heads, PART_HEADER + config.head_dim), np.float32),
        )
        return torch.from_numpy(logits)[:, : config.vocab_size]

    def _blocks(self, num_rows: int, terms: int, num_threads: int) -> NDArray[np.int64]:  # [4], by LINEARS
        """Into how many blocks of rows each product of a layer is cut."""
        products = linear_shapes(self.config).values()
        counts = [count_blocks(num_rows, columns, outputs, terms, num_threads) for outputs, columns in products]
        return np.array(counts, np.int64)

    def _tiles(self, name: str, num_rows: int, num_columns: int, terms: int) -> NDArray[np.uint8]:
        """Memory as `tiles_for` makes it, kept from step to step: the system takes long to give new memory."""
        num_bytes = max(0, _rounded_up(num_rows)) * num_columns * 2 * amx.parts(terms)
        if name not in self._scratch or len(self._scratch[name]) < num_bytes:
            self._scratch[name] = tiles_for(num_rows, num_columns, terms)
        return self._scratch[name][:num_bytes]


def _rounded_up(num_rows: int) -> int:
    """To whole tiles."""
    return -(-num_rows // ROWS) * ROWS


def _with_logits(chunks: NDArray[np.int64], logits_rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Those chunks [chunks, 2] that hold a row whose logits are wanted."""
    first_rows, num_rows = chunks[:, :1], chunks[:, 1:]
    holds = (first_rows <= logits_rows) & (logits_rows < first_rows + num_rows)
    return chunks[holds.any(axis=1)]
