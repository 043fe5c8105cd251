"""What the compiled steps take: packed weights, a step's rows, and the cache, as arrays and addresses."""

from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from paged_chat.kernels.cpu.amx_prefix import most_members, segment_blocks
from paged_chat.kernels.cpu.arrays import address, stride_bytes
from paged_chat.kernels.cpu.paged_attention import count_pieces
from paged_chat.kernels.cpu.piece_attention import BLOCK_SIZE, PIECE_BLOCKS
from paged_chat.kernels.cpu.simd import LANES
from paged_chat.kernels.cpu.team import default_threads
from paged_chat.kernels.prefix_plan import PrefixPlan, plan_prefixes
from paged_chat.kernels.shared_run import SharedRun, whole_units

from .config import ModelConfig
from .decoder import DecoderInput
from .packed_weights import LINEARS, PackedWeights
from .rope import cos_sin_tables

MAX_EXACT_ROWS = 48
"""Up to so many rows, products keep 16 digits: time goes to the weights then, and short prompts are where a model's
first choice is often close."""


class PackedArrays:
    """A model's packed weights and rotary tables, in the order of the steps' parameters.

    The tables hold `num_positions` and grow when a context gets longer.
    """

    def __init__(self, config: ModelConfig, weights: PackedWeights, num_positions: int) -> None:
        self._config = config
        self.bits = weights.bits  # of the linear layers
        self._embedding = weights.embedding.view(torch.uint16).numpy()
        self._linears = tuple(tensor.numpy() for tensor in weights.linears)
        self._biases = tuple(tensor.numpy() for tensor in weights.biases)
        self._norms = tuple(
            tensor.numpy()
            for tensor in (weights.attention_norms, weights.mlp_norms, weights.query_norms, weights.key_norms)
        )
        self._norm = weights.norm.numpy()
        self._head = weights.head.numpy()
        self.padded_vocab = LANES * len(self._head)
        self._windows = np.array([window or 0 for window in config.windows], dtype=np.int64)
        self._ropes = ~np.array(config.nope, dtype=np.bool_)
        self._cos, self._sin = cos_sin_tables(config.rope, config.head_dim, num_positions)

    def truncated(self, num_layers: int) -> "PackedArrays":
        """The first layers alone, and of the head the first tile; whatever else a layer has stays as long as it was."""
        shorter = copy(self)
        shorter._linears, shorter._biases, shorter._norms = (
            tuple(array[:num_layers] for array in arrays) for arrays in (self._linears, self._biases, self._norms)
        )
        shorter._head, shorter.padded_vocab = self._head[:1], LANES
        return shorter

    def embed(self, input_ids: Tensor, num_rows: int) -> NDArray[np.float32]:  # [M] → [num_rows, W]
        """The tokens' embeddings, and zeros in rows behind them.

        Not torch's: its threads would share the rows, and then keep the cores busy, waiting, when the step begins.
        """
        bits = np.zeros((num_rows, self._embedding.shape[1]), np.uint32)
        bits[: len(input_ids)] = self._embedding[input_ids.numpy()]
        bits <<= 16  # bfloat16 is the upper half of float32
        return bits.view(np.float32)

    def num_tiles(self, linear: str) -> int:
        """Of 16 outputs each, in one layer; `linear` is one of LINEARS."""
        return self._linears[LINEARS.index(linear)].shape[1]

    def shares(self, max_context_len: int) -> NDArray[np.int64]:  # [L]
        """1 for each layer whose rows see contexts of so many tokens from the start, 0 where a window hides some."""
        return ((self._windows == 0) | (self._windows >= max_context_len)).astype(np.int64)

    def piece_starts(
        self,
        context_lens: NDArray[np.int64],  # [M]
        own_starts: NDArray[np.int64],  # [2, M] of a PrefixPlan
        shares: NDArray[np.int64],  # [L]
    ) -> NDArray[np.int64]:  # [L or 1, M + 1]
        """`count_pieces` of each layer's window; one row where no layer has one."""
        windows = self._windows if self._windows.any() else self._windows[:1]
        return np.stack(
            [
                count_pieces(context_lens, int(window), own_starts[is_shared])
                for window, is_shared in zip(windows, shares[: len(windows)], strict=True)
            ]
        )

    def parameters(self, max_context_len: int) -> tuple[Any, ...]:
        """The steps' parameters from `weights` to `scale`, for contexts of so many tokens."""
        config = self._config
        if max_context_len > len(self._cos):
            self._cos, self._sin = cos_sin_tables(
                config.rope, config.head_dim, max(max_context_len, 2 * len(self._cos))
            )
        return (
            self._linears,
            self._biases,
            self._norms,
            self._norm,
            self._head,
            self._windows,
            self._ropes,
            self._cos.numpy(),
            self._sin.numpy(),
            np.float32(config.rms_norm_eps),
            np.float32(config.head_dim**-0.5),
        )


@dataclass(frozen=True, slots=True)
class StepRows:
    """Where each of a step's M rows stands.

    Arrays of its own where the batch's may change: a helper thread may still look at a finished step's arguments.
    """

    positions: NDArray[np.int64]  # [M]
    slots: NDArray[np.int64]  # [M]
    table_rows: NDArray[np.int64]  # [M], the row of block_tables that each reads
    block_tables: NDArray[np.int32]  # [S, max_blocks]
    context_lens: NDArray[np.int64]  # [M], each row's own token included
    counts: NDArray[np.int64]  # [S] rows of each sequence, those that decode first

    @classmethod
    def from_input(cls, inputs: DecoderInput) -> "StepRows":
        positions = inputs.positions.numpy().copy()
        counts = np.concatenate([np.ones(inputs.num_decodes, np.int64), np.diff(inputs.cu_seqlens_q.numpy())])
        return cls(
            positions,
            inputs.slot_mapping.numpy(),
            np.repeat(np.arange(len(counts)), counts),
            inputs.block_tables.numpy(),
            positions + 1,
            counts,
        )


def plan_for(runs: tuple[SharedRun, ...], config: ModelConfig, num_rows: int, *, uses_tiles: bool) -> PrefixPlan:
    """Who computes what of the blocks that a step's rows share: by matrix tiles, or whole pieces by vectors."""
    most = most_members(config.num_heads // config.num_kv_heads)
    if not uses_tiles:
        return plan_prefixes(whole_units(runs, PIECE_BLOCKS), num_rows, BLOCK_SIZE, most, PIECE_BLOCKS)
    return plan_prefixes(runs, num_rows, BLOCK_SIZE, most, segment_blocks(runs, default_threads()))


def cache_addresses(key_caches: list[Tensor], value_caches: list[Tensor]) -> tuple[np.uint64, ...]:
    """Of the first layer's keys in block 0; then bytes from layer to layer, block to block, and keys to values."""
    first = address(key_caches[0])
    return (
        first,
        address(key_caches[1]) - first if len(key_caches) > 1 else np.uint64(0),
        stride_bytes(key_caches[0], 0),
        address(value_caches[0]) - first,
    )
