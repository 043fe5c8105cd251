"""The operations that a model needs, as one interface with three implementations.

`reference` is plain torch with float32 accumulation and is the truth; `cpu` and `gpu` are fast and compared with it.
The layout inside a block belongs to the backend: callers ask `kv_block_shapes` and never index into a block themselves.
"""

from typing import Protocol

from torch import Tensor

from .shared_run import SharedRun


class Backend(Protocol):
    """Shapes: T tokens, S sequences, H query heads, K key/value heads, D head size, B tokens a block, N blocks.

    A slot is block_id * B + offset. Block 0 is the null block: padding writes there, nothing reads it.
    Unused slots may hold NaN. A context of 0 tokens is padding too: its rows of attention are 0.
    """

    name: str

    def kv_block_shapes(
        self, num_kv_heads: int, block_size: int, head_dim: int
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Shapes of the keys and of the values of one block of one layer, in this backend's layout."""
        ...

    def write_kv(
        self,
        key: Tensor,  # [T, K, D]
        value: Tensor,  # [T, K, D]
        key_cache: Tensor,  # [N, *key block shape]
        value_cache: Tensor,  # [N, *value block shape]
        slot_mapping: Tensor,  # [T] int64
    ) -> None:
        """Scatters new keys and values into their slots."""
        ...

    def attention_decode(
        self,
        query: Tensor,  # [S, H, D]
        key_cache: Tensor,
        value_cache: Tensor,
        block_tables: Tensor,  # [S, max_blocks] int32, padded with 0
        context_lens: Tensor,  # [S] int32, the query's own token included
        scale: float,
        window: int | None,  # a query sees itself and the window - 1 tokens before it
    ) -> Tensor:  # [S, H, D]
        """Attention of each sequence's last token over its paged context (PagedAttention, Kwon et al. 2023)."""
        ...

    def attention_prefix(
        self,
        query: Tensor,  # [S, H, D]
        key_cache: Tensor,
        value_cache: Tensor,
        block_tables: Tensor,  # [S, max_blocks] int32, padded with 0
        context_lens: Tensor,  # [S] int32, the query's own token included
        scale: float,
        window: int | None,
        runs: tuple[SharedRun, ...],
    ) -> Tensor:  # [S, H, D]
        """`attention_decode`, with what the sequences share read once and merged with what each has of its own
        (cascade inference, Ye et al. 2024; Hydragen, Juravsky et al. 2024).

        A backend may read all of it for each sequence where that is faster.
        """
        ...

    def attention_prefill(
        self,
        query: Tensor,  # [T, H, D], the sequences' queries one after the other
        key_cache: Tensor,
        value_cache: Tensor,
        block_tables: Tensor,  # [S, max_blocks] int32, padded with 0
        context_lens: Tensor,  # [S] int32, the queries' own tokens included
        cu_seqlens_q: Tensor,  # [S + 1] int32, sequence i owns rows cu_seqlens_q[i]:cu_seqlens_q[i + 1]
        max_query_len: int,
        scale: float,
        window: int | None,
    ) -> Tensor:  # [T, H, D]
        """Causal attention of the last q_i tokens of each sequence over its whole paged context."""
        ...

    def copy_blocks(
        self,
        cache: Tensor,  # [N, ...] whole blocks along the first dimension
        source: Tensor,  # [C] int64 block ids
        destination: Tensor,  # [C] int64 block ids, distinct
    ) -> None:
        """Copies whole blocks; all sources are read as they were before any destination is written."""
        ...

    def rms_norm(
        self,
        hidden: Tensor,  # [..., width]
        weight: Tensor,  # [width]
        eps: float,
        residual: Tensor | None = None,  # [..., width], added to hidden first
    ) -> tuple[Tensor, Tensor]:
        """(hidden + residual) / rms * weight in hidden's dtype, and hidden + residual itself (Zhang and Sennrich 2019).

        The sum is float32 whatever the inputs are: rounding it to bfloat16 in every layer costs most of the precision
        that is lost in bfloat16 (SmolLM2-135M: a KL divergence of 0.0031 instead of 0.0009 nats a token).
        """
        ...

    def rope(
        self,
        query: Tensor,  # [T, H, D], rotated in place
        key: Tensor,  # [T, K, D], rotated in place
        positions: Tensor,  # [T] int64
        cos: Tensor,  # [max_position, R / 2] float32, R <= D rotated features
        sin: Tensor,  # [max_position, R / 2] float32
    ) -> None:
        """Rotary position embedding, feature i paired with i + R / 2 (Su et al. 2021, GPT-NeoX order)."""
        ...

    def rope_write_kv(
        self,
        query: Tensor,  # [T, H, D], rotated in place
        key: Tensor,  # [T, K, D], left rotated or as it was
        value: Tensor,  # [T, K, D]
        positions: Tensor,  # [T] int64
        cos: Tensor,  # [max_position, R / 2] float32
        sin: Tensor,  # [max_position, R / 2] float32
        key_cache: Tensor,  # [N, *key block shape]
        value_cache: Tensor,  # [N, *value block shape]
        slot_mapping: Tensor,  # [T] int64
    ) -> None:
        """`rope`, then `write_kv` of the rotated keys; one pass where the device has something to gain from it."""
        ...

    def silu_mul(
        self,
        gate_up: Tensor,  # [T, 2 * width], gates first
    ) -> Tensor:  # [T, width]
        """silu(gate) * up (Shazeer 2020)."""
        ...

    def linear(
        self,
        hidden: Tensor,  # [T, in]
        weight: Tensor,  # [out, in]
        bias: Tensor | None,  # [out]
    ) -> Tensor:  # [T, out]
        """hidden @ weight.T + bias."""
        ...
