"""Attention of sequences that share blocks, on its own, as the compiled steps compute it inside."""

from collections.abc import Callable
from functools import cache

import numpy as np
import torch
from torch import Tensor

from ..prefix_plan import plan_prefixes
from ..shared_run import SharedRun, whole_units
from . import amx
from .amx import COLUMNS, EXACT
from .amx_prefix import attend_alone, most_members, prefix_scratch, segment_blocks
from .arrays import address, kind_of, stride_bytes
from .attention import attention_decode
from .kv_cache import is_vectorised
from .paged_attention import attend_rows, count_pieces
from .piece_attention import BLOCK_SIZE, PART_HEADER, PIECE_BLOCKS, heads_at_once
from .shared_pieces import attend_pieces, piece_scratch
from .simd import SOURCE_STAMP, compiled
from .team import default_threads, shared_team
from .work_sharing import new_counters


@cache
def _compile(head_dim: int, group: int, kind: int, shared_terms: int) -> Callable[..., None]:
    """With `shared_terms` 0 by vectors, else by matrix tiles."""
    stamp = SOURCE_STAMP
    at_once = heads_at_once(group, head_dim)

    @compiled(cache=True)
    def attend(  # type: ignore[no-untyped-def]
        counters, prefixes, query, num_kv_heads, keys, values, block_stride, block_tables, table_rows, context_lens,
        window, piece_starts, shared_parts, parts, output
    ):  # fmt: skip
        _ = stamp
        segments, members, own_starts, part_starts = prefixes
        if shared_terms:
            scratch = prefix_scratch(group, num_kv_heads, head_dim, True)
            attend_alone(head_dim, shared_terms, counters, 0, segments, members, group, num_kv_heads, query, keys,
                         values, block_stride, block_tables, table_rows, scratch, shared_parts)  # fmt: skip
        else:
            scratch = piece_scratch(head_dim, True)
            attend_pieces(head_dim, at_once, kind, counters, 0, segments, members, group, num_kv_heads, query, keys,
                          values, block_stride, block_tables, table_rows, scratch, shared_parts)  # fmt: skip
        attend_rows(head_dim, group, at_once, kind, counters, 1, query, keys, values, block_stride, block_tables,
                    table_rows, context_lens, window, piece_starts, own_starts[1], part_starts[1], shared_parts, parts,
                    output)  # fmt: skip

    return attend


def attention_prefix(
    query: Tensor,  # [S, H, D]
    key_cache: Tensor,  # [N, K, D, B] or [N, K, B, D]
    value_cache: Tensor,  # [N, K, B, D]
    block_tables: Tensor,  # [S, max_blocks] int32
    context_lens: Tensor,  # [S] int32
    scale: float,
    window: int | None,
    runs: tuple[SharedRun, ...],
) -> Tensor:  # [S, H, D]
    """`attention_decode`, with the runs' blocks read once where no window hides them: by matrix tiles, or whole pieces
    of them by vectors, which gives the same to the bit."""
    num_rows, num_heads, head_dim = query.shape
    lens = np.array(context_lens.tolist(), np.int64)
    sees_all = window is None or window >= lens.max(initial=0)
    uses_tiles = _fits_tiles(value_cache)
    if not uses_tiles:
        runs = whole_units(runs, PIECE_BLOCKS)
    if not runs or not sees_all or not is_vectorised(*value_cache.shape[2:]):
        return attention_decode(query, key_cache, value_cache, block_tables, context_lens, scale, window)
    num_kv_heads = key_cache.shape[1]
    group = num_heads // num_kv_heads
    cut = segment_blocks(runs, default_threads()) if uses_tiles else PIECE_BLOCKS
    plan = plan_prefixes(runs, num_rows, BLOCK_SIZE, most_members(group), cut)
    piece_starts = count_pieces(lens, 0, plan.own_starts[1])
    part = (num_heads, PART_HEADER + head_dim)
    output = np.empty((num_rows, num_heads * head_dim), np.float32)
    shared_team().run(
        _compile(head_dim, group, kind_of(query), EXACT if uses_tiles else 0),
        new_counters(3),
        plan.arrays,
        (query.float() * scale).reshape(num_rows, -1).numpy(),
        num_kv_heads,
        address(key_cache),
        address(value_cache),
        stride_bytes(key_cache, 0),
        block_tables.numpy(),
        np.arange(num_rows),
        lens,
        0,
        piece_starts,
        np.empty((len(plan.members), *part), np.float32),
        np.empty((int(piece_starts[-1]), *part), np.float32),
        output,
    )
    return torch.from_numpy(output).view(query.shape).to(query.dtype)


def _fits_tiles(value_cache: Tensor) -> bool:
    _, _, block_size, head_dim = value_cache.shape
    is_fit = value_cache.dtype == torch.bfloat16 and head_dim % COLUMNS == 0 and is_vectorised(block_size, head_dim)
    return is_fit and amx.has_tiles()
