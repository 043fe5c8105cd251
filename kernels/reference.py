"""The truth: every operation of `Backend` in plain torch, summed in float32, one sequence at a time.

Slow and short on purpose. The fast kernels carry the same names and are compared with these.
Keys and values of one block are `[num_kv_heads, block_size, head_dim]`.
"""

import torch
from torch import Tensor

from .shared_run import SharedRun, own_first_blocks

name: str = "reference"


def kv_block_shapes(num_kv_heads: int, block_size: int, head_dim: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shapes of the keys and of the values of one block of one layer."""
    return (num_kv_heads, block_size, head_dim), (num_kv_heads, block_size, head_dim)


def write_kv(
    key: Tensor,  # [T, K, D]
    value: Tensor,  # [T, K, D]
    key_cache: Tensor,  # [N, K, B, D]
    value_cache: Tensor,  # [N, K, B, D]
    slot_mapping: Tensor,  # [T] int64
) -> None:
    """Scatters new keys and values into their slots; of several rows with one slot any may win."""
    block_size = key_cache.shape[2]
    block_ids, offsets = slot_mapping // block_size, slot_mapping % block_size
    key_cache[block_ids, :, offsets] = key
    value_cache[block_ids, :, offsets] = value


def attention_decode(
    query: Tensor,  # [S, H, D]
    key_cache: Tensor,  # [N, K, B, D]
    value_cache: Tensor,  # [N, K, B, D]
    block_tables: Tensor,  # [S, max_blocks] int32
    context_lens: Tensor,  # [S] int32
    scale: float,
    window: int | None,
) -> Tensor:  # [S, H, D]
    """Attention of each sequence's last token over its paged context: a prefill of one query per sequence."""
    cu_seqlens_q = torch.arange(len(query) + 1, dtype=torch.int32)
    return attention_prefill(query, key_cache, value_cache, block_tables, context_lens, cu_seqlens_q, 1, scale, window)


def attention_prefix(
    query: Tensor,  # [S, H, D]
    key_cache: Tensor,  # [N, K, B, D]
    value_cache: Tensor,  # [N, K, B, D]
    block_tables: Tensor,  # [S, max_blocks] int32
    context_lens: Tensor,  # [S] int32
    scale: float,
    window: int | None,
    runs: tuple[SharedRun, ...],
) -> Tensor:  # [S, H, D]
    """Each stretch of blocks gives an output o_i and a log-sum-exp lse_i; together Σ e^(lse_i - lse) o_i.

    Keys and values of a run are gathered once, from the table of its first row.
    """
    block_size, own_firsts = key_cache.shape[2], own_first_blocks(runs, len(query))
    stretches = [(run.rows, run.first_block, run.end_block) for run in runs]
    num_blocks = [-(-length // block_size) for length in context_lens.tolist()]
    stretches += [((row,), own_firsts[row], num_blocks[row]) for row in range(len(query))]
    lse = torch.full(query.shape[:2], float("-inf"))
    total = torch.zeros(query.shape, dtype=torch.float32)
    for rows, first, end in stretches:
        table = block_tables[rows[0], first:end]
        keys, values = (_gather(cache, table, block_size * len(table)) for cache in (key_cache, value_cache))
        for row in rows:
            first_seen = max(0, int(context_lens[row]) - window) if window is not None else 0
            seen = slice(max(0, first_seen - first * block_size), int(context_lens[row]) - first * block_size)
            if keys[:, seen].shape[1] == 0:
                continue
            output, own_lse = _attend_part(query[row].float(), keys[:, seen], values[:, seen], scale)
            merged = torch.logaddexp(lse[row], own_lse)
            total[row] = total[row] * (lse[row] - merged).exp()[:, None] + output * (own_lse - merged).exp()[:, None]
            lse[row] = merged
    return total.to(query.dtype)


def _attend_part(
    query: Tensor,  # [H, D] float32
    keys: Tensor,  # [K, L, D] float32
    values: Tensor,  # [K, L, D] float32
    scale: float,
) -> tuple[Tensor, Tensor]:  # [H, D], [H]
    """One query's attention over some of its context, and the log-sum-exp of its scores."""
    group = len(query) // len(keys)
    scores = torch.einsum("hd,hld->hl", query, keys.repeat_interleave(group, dim=0)) * scale
    return torch.einsum("hl,hld->hd", scores.softmax(-1), values.repeat_interleave(group, dim=0)), scores.logsumexp(-1)


def attention_prefill(
    query: Tensor,  # [T, H, D]
    key_cache: Tensor,  # [N, K, B, D]
    value_cache: Tensor,  # [N, K, B, D]
    block_tables: Tensor,  # [S, max_blocks] int32
    context_lens: Tensor,  # [S] int32
    cu_seqlens_q: Tensor,  # [S + 1] int32
    max_query_len: int,
    scale: float,
    window: int | None,
) -> Tensor:  # [T, H, D]
    """softmax(Q Kᵀ · scale + mask) V, the mask aligned to the end of the context (Vaswani et al. 2017).

    Query i of q sits at position context - q + i; it sees the positions up to its own, the last `window` of them.
    Rows whose context is 0 (padding) are 0.
    """
    output = torch.zeros_like(query, memory_format=torch.contiguous_format)
    starts = cu_seqlens_q.tolist()
    for sequence, context_len in enumerate(context_lens.tolist()):
        rows = slice(starts[sequence], starts[sequence + 1])
        if context_len == 0 or rows.start == rows.stop:
            continue
        keys = _gather(key_cache, block_tables[sequence], context_len)
        values = _gather(value_cache, block_tables[sequence], context_len)
        output[rows] = _attend(query[rows].float(), keys, values, scale, window).to(query.dtype)
    return output


def _gather(
    cache: Tensor,  # [N, K, B, D]
    block_table: Tensor,  # [max_blocks] int32
    context_len: int,
) -> Tensor:  # [K, context_len, D] float32
    num_blocks = -(-context_len // cache.shape[2])
    blocks = cache[block_table[:num_blocks].long()]
    # Cut, not masked: what lies behind the context may be NaN, and NaN · 0 is NaN.
    return blocks.transpose(0, 1).flatten(1, 2)[:, :context_len].float()


def _attend(
    query: Tensor,  # [q, H, D] float32
    keys: Tensor,  # [K, L, D] float32
    values: Tensor,  # [K, L, D] float32
    scale: float,
    window: int | None,
) -> Tensor:  # [q, H, D] float32
    num_queries, num_heads, _ = query.shape
    num_kv_heads, context_len, _ = keys.shape
    keys = keys.repeat_interleave(num_heads // num_kv_heads, dim=0)
    values = values.repeat_interleave(num_heads // num_kv_heads, dim=0)
    positions = torch.arange(context_len, device=query.device)
    query_positions = positions[context_len - num_queries :, None]
    visible = positions <= query_positions
    if window is not None:
        visible &= positions > query_positions - window
    scores = torch.einsum("qhd,hld->hql", query, keys) * scale
    weights = scores.masked_fill(~visible, float("-inf")).softmax(dim=-1)
    return torch.einsum("hql,hld->qhd", weights, values)


def copy_blocks(
    cache: Tensor,  # [N, ...]
    source: Tensor,  # [C] int64
    destination: Tensor,  # [C] int64
) -> None:
    """Copies whole blocks; the right-hand side is a copy, so all sources are read before any destination is written."""
    cache[destination] = cache[source]


def rms_norm(
    hidden: Tensor,  # [..., width]
    weight: Tensor,  # [width]
    eps: float,
    residual: Tensor | None = None,  # [..., width]
) -> tuple[Tensor, Tensor]:
    """h = hidden + residual; (h / sqrt(mean(h²) + eps) · weight, h) (Zhang and Sennrich 2019)."""
    total = hidden if residual is None else hidden.float() + residual.float()
    wide = total.float()
    normed = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight.float()
    return normed.to(hidden.dtype), total


def rope(
    query: Tensor,  # [T, H, D]
    key: Tensor,  # [T, K, D]
    positions: Tensor,  # [T] int64
    cos: Tensor,  # [max_position, R / 2] float32
    sin: Tensor,  # [max_position, R / 2] float32
) -> None:
    """Rotates features (i, i + R/2) by the angle of the position, in place (Su et al. 2021, GPT-NeoX order)."""
    half = cos.shape[1]
    row_cos, row_sin = cos[positions, None], sin[positions, None]  # [T, 1, R / 2]
    for heads in (query, key):
        first, second = heads[..., :half].float(), heads[..., half : 2 * half].float()
        rotated = torch.cat([first * row_cos - second * row_sin, second * row_cos + first * row_sin], dim=-1)
        heads[..., : 2 * half] = rotated.to(heads.dtype)


def rope_write_kv(
    query: Tensor,  # [T, H, D]
    key: Tensor,  # [T, K, D]
    value: Tensor,  # [T, K, D]
    positions: Tensor,  # [T] int64
    cos: Tensor,  # [max_position, R / 2] float32
    sin: Tensor,  # [max_position, R / 2] float32
    key_cache: Tensor,  # [N, K, B, D]
    value_cache: Tensor,  # [N, K, B, D]
    slot_mapping: Tensor,  # [T] int64
) -> None:
    """Rotates queries and keys in place, then writes the keys and the values into their slots."""
    rope(query, key, positions, cos, sin)
    write_kv(key, value, key_cache, value_cache, slot_mapping)


def silu_mul(
    gate_up: Tensor,  # [T, 2 * width]
) -> Tensor:  # [T, width]
    """gate · sigmoid(gate) · up (Shazeer 2020)."""
    gate, up = gate_up.float().chunk(2, dim=-1)
    return (gate * torch.sigmoid(gate) * up).to(gate_up.dtype)


def linear(
    hidden: Tensor,  # [T, in]
    weight: Tensor,  # [out, in]
    bias: Tensor | None,  # [out]
) -> Tensor:  # [T, out]
    """hidden · weightᵀ + bias."""
    output = hidden.float() @ weight.float().T
    return (output if bias is None else output + bias.float()).to(hidden.dtype)
