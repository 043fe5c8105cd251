"""Attention over paged blocks in plain torch: gather a context into rows, then torch's flash attention.

Grouped heads are never expanded in memory. In decode a group's queries become rows of one head; in prefill the keys
of a head are repeated with stride 0.
"""

import torch
from torch import Tensor
from torch.nn import functional

from .flash_operator import Flash, find_flash
from .kv_cache import gather_blocks, gather_keys

MAX_PADDED_TOKENS = 4096  # of one decode group: larger ones fall out of the caches and gain nothing
CHUNK_QUERIES = 256  # rows of a prefill that share one mask
MIN_SPLIT_QUERIES = 128  # from here on two unmasked parts and a merge are faster than one masked part


def attention_decode(
    query: Tensor,  # [S, H, D]
    key_cache: Tensor,  # [N, K, D, B] or [N, K, B, D]
    value_cache: Tensor,  # [N, K, B, D]
    block_tables: Tensor,  # [S, max_blocks] int32
    context_lens: Tensor,  # [S] int32
    scale: float,
    window: int | None,
) -> Tensor:  # [S, H, D]
    """softmax(q Kᵀ · scale) V for each sequence's last token; sequences of similar length go together."""
    num_seqs, num_heads, head_dim = query.shape
    _, num_kv_heads, block_size, _ = value_cache.shape
    folded = query.reshape(num_seqs, num_kv_heads, num_heads // num_kv_heads, head_dim)
    lengths = context_lens.tolist()
    first_tokens = [0 if window is None else max(0, length - window) for length in lengths]
    columns = [
        (first // block_size, -(-length // block_size)) for first, length in zip(first_tokens, lengths, strict=True)
    ]
    groups = group_by_width([last - first for first, last in columns], MAX_PADDED_TOKENS // block_size)

    output = torch.zeros_like(folded, memory_format=torch.contiguous_format)
    for rows, width in groups:
        if width == 0:
            continue  # contexts of 0 tokens are padding
        if len(rows) == 1:
            [row] = rows
            first, last = columns[row]
            block_ids = block_tables[row : row + 1, first:last].long()
            cut = slice(first_tokens[row] - first * block_size, lengths[row] - first * block_size)
            keys = gather_keys(key_cache, block_ids, head_dim)[:, :, cut]
            values = gather_blocks(value_cache, block_ids)[:, :, cut]
            output[row] = functional.scaled_dot_product_attention(folded[row : row + 1], keys, values, scale=scale)[0]
            continue

        picked = torch.tensor(rows)
        first_columns = [columns[row][0] for row in rows]
        table_columns = torch.tensor(first_columns)[:, None] + torch.arange(width)
        # Behind its last block a shorter sequence reads whatever column is there; it is masked below.
        block_ids = block_tables[picked].long().gather(1, table_columns.clamp_(max=block_tables.shape[1] - 1))
        keys, values = gather_keys(key_cache, block_ids, head_dim), gather_blocks(value_cache, block_ids)
        visible = torch.zeros(len(rows), 1, 1, width * block_size, dtype=torch.bool)
        for index, (row, first_column) in enumerate(zip(rows, first_columns, strict=True)):
            start, stop = first_tokens[row] - first_column * block_size, lengths[row] - first_column * block_size
            visible[index, :, :, start:stop] = True
            # Unused slots may hold NaN, which no mask on the scores removes: NaN - inf and NaN · 0 are NaN.
            for gathered in (keys[index], values[index]):
                gathered[:, :start].zero_()
                gathered[:, stop:].zero_()
        output[picked] = functional.scaled_dot_product_attention(
            folded[picked], keys, values, attn_mask=visible, scale=scale
        )
    return output.view(num_seqs, num_heads, head_dim)


def group_by_width(widths: list[int], max_padded_blocks: int) -> list[tuple[list[int], int]]:
    """Sequences of similar width, widest first: (their rows, the width of the widest).

    At most a quarter of a group is padding (a few blocks always may be), and a group of more than one row holds at
    most `max_padded_blocks` blocks.
    """
    groups: list[tuple[list[int], int]] = []
    for row in sorted(range(len(widths)), key=lambda row: -widths[row]):
        if groups:
            rows, widest = groups[-1]
            alike = widths[row] >= min(widest * 3 // 4, widest - 4) and (widths[row] > 0 or widest == 0)
            if alike and (len(rows) + 1) * widest <= max_padded_blocks:
                rows.append(row)
                continue
        groups.append(([row], widths[row]))
    return groups


def attention_prefill(
    query: Tensor,  # [T, H, D]
    key_cache: Tensor,  # [N, K, D, B] or [N, K, B, D]
    value_cache: Tensor,  # [N, K, B, D]
    block_tables: Tensor,  # [S, max_blocks] int32
    context_lens: Tensor,  # [S] int32
    cu_seqlens_q: Tensor,  # [S + 1] int32
    max_query_len: int,
    scale: float,
    window: int | None,
) -> Tensor:  # [T, H, D]
    """softmax(Q Kᵀ · scale + mask) V, causal, the mask aligned to the end of each context."""
    _, num_heads, head_dim = query.shape
    _, num_kv_heads, block_size, _ = value_cache.shape
    output = torch.zeros_like(query, memory_format=torch.contiguous_format)
    starts = cu_seqlens_q.tolist()
    for sequence, context_len in enumerate(context_lens.tolist()):
        num_queries = starts[sequence + 1] - starts[sequence]
        if context_len == 0 or num_queries == 0:
            continue
        first_token = 0 if window is None else max(0, context_len - num_queries - window + 1)
        first_column, last_column = first_token // block_size, -(-context_len // block_size)
        block_ids = block_tables[sequence : sequence + 1, first_column:last_column].long()
        cut = slice(first_token - first_column * block_size, context_len - first_column * block_size)
        rows = slice(starts[sequence], starts[sequence + 1])
        grouped = (num_queries, num_kv_heads, num_heads // num_kv_heads, head_dim)
        # Heads as batch, a group as heads: [K, group, tokens, D]; the group's keys are one tensor with stride 0.
        attended = _attend_causal(
            query[rows].reshape(grouped).permute(1, 2, 0, 3),
            gather_keys(key_cache, block_ids, head_dim)[0, :, None, cut].expand(-1, grouped[2], -1, -1),
            gather_blocks(value_cache, block_ids)[0, :, None, cut].expand(-1, grouped[2], -1, -1),
            scale,
            window,
        )
        output[rows].view(grouped).copy_(attended.permute(2, 0, 1, 3))
    return output


def _attend_causal(
    query: Tensor,  # [K, group, q, D]
    keys: Tensor,  # [K, group, L, D]
    values: Tensor,  # [K, group, L, D]
    scale: float,
    window: int | None,
) -> Tensor:  # [K, group, q, D]
    num_queries, num_keys = query.shape[2], keys.shape[2]
    num_before = num_keys - num_queries
    if window is None or window >= num_keys:
        if num_before == 0:
            return functional.scaled_dot_product_attention(query, keys, values, is_causal=True, scale=scale)
        if num_queries >= MIN_SPLIT_QUERIES and (flash := find_flash()) is not None:
            return _attend_in_two_parts(flash, query, keys, values, scale)

    chunks = []
    for start in range(0, num_queries, CHUNK_QUERIES):
        stop = min(start + CHUNK_QUERIES, num_queries)
        first_key = 0 if window is None else max(0, num_before + start - window + 1)
        visible = torch.ones(stop - start, num_before + stop - first_key, dtype=torch.bool)
        visible.tril_(num_before + start - first_key)
        if window is not None:
            visible.triu_(num_before + start - first_key - window + 1)
        seen = slice(first_key, num_before + stop)
        chunks.append(
            functional.scaled_dot_product_attention(
                query[:, :, start:stop], keys[:, :, seen], values[:, :, seen], attn_mask=visible, scale=scale
            )
        )
    return chunks[0] if len(chunks) == 1 else torch.cat(chunks, dim=2)


def _attend_in_two_parts(
    flash: Flash,
    query: Tensor,  # [K, group, q, D]
    keys: Tensor,  # [K, group, L, D]
    values: Tensor,  # [K, group, L, D]
    scale: float,
) -> Tensor:  # [K, group, q, D]
    """All see what was before the queries, and causally each other; merged by log-sum-exp (Dao et al. 2022).

    Without a mask there is nothing to materialise, and of the causal part half is never computed.
    """
    num_before = keys.shape[2] - query.shape[2]
    before, before_lse = flash(query, keys[:, :, :num_before], values[:, :, :num_before], scale, False)
    own, own_lse = flash(query, keys[:, :, num_before:], values[:, :, num_before:], scale, True)
    share_before = torch.sigmoid(before_lse - own_lse).unsqueeze(-1)
    return torch.lerp(own.float(), before.float(), share_before).to(query.dtype)
