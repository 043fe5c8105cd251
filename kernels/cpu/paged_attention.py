"""Attention of one token over its paged context, for a processor.

A context is cut at every 256 tokens, by position alone. Each piece is attended to by itself (piece_attention.py) and
the pieces are merged in order by their log-sum-exp, so a token's result is the same to the bit whether it is computed
alone or among others, in a prefill or while decoding, and whoever computes the pieces.

Where rows share the beginning of their contexts, what it gives them may be computed before (amx_prefix.py): those parts
are merged first, and a row's own pieces begin behind them.
"""

import math

import numpy as np
from numba import literally
from numpy.typing import NDArray

from .piece_attention import PART_HEADER, PIECE_TOKENS, attend_piece
from .simd import compiled
from .work_sharing import items

ROWS_BY_PIECE = 16  # up to so many rows, pieces of contexts are shared among the threads; above, whole rows are


@compiled()
def merge_part(part, merged, is_first):  # type: ignore[no-untyped-def]
    """Adds a piece's [H, PART_HEADER + D] to what the pieces before it came to."""
    for head in range(part.shape[0]):
        if is_first:
            for i in range(part.shape[1]):
                merged[head, i] = part[head, i]
            continue
        largest = max(merged[head, 0], part[head, 0])
        keep, add = np.float32(math.exp(merged[head, 0] - largest)), np.float32(math.exp(part[head, 0] - largest))
        for i in range(PART_HEADER, part.shape[1]):
            merged[head, i] = merged[head, i] * keep + part[head, i] * add
        merged[head, 0] = largest
        merged[head, 1] = merged[head, 1] * keep + part[head, 1] * add


@compiled()
def normalise(merged, output):  # type: ignore[no-untyped-def]
    """merged [H, PART_HEADER + D] → output [H · D]."""
    width = merged.shape[1] - PART_HEADER
    for head in range(merged.shape[0]):
        inverse = np.float32(1.0) / merged[head, 1]
        for i in range(width):
            output[head * width + i] = merged[head, PART_HEADER + i] * inverse


@compiled()
def first_of(context_len, window, own_start):  # type: ignore[no-untyped-def]
    """The first token that a row sees by itself."""
    return max(own_start, context_len - window) if window else own_start


@compiled()
def attend_rows(  # type: ignore[no-untyped-def]
    head_dim,  # literal, as are the next three
    group,
    at_once,
    kind,
    counters,
    stage,  # and the next one
    query,  # [M, at least H · D] float32, scaled
    keys,  # address of the layer's keys in block 0
    values,
    block_stride,
    block_tables,  # [S, max_blocks] int32
    table_rows,  # [M] int64, the block table that each row reads
    context_lens,  # [M] int64, the row's own token included
    window,  # tokens that a row sees, itself included; 0 for all
    piece_starts,  # [M + 1] int64: how many pieces the rows before have together
    own_starts,  # [M] int64, tokens at the beginning of each row's context that `shared_parts` stand for
    shared_starts,  # [M + 1] int64: how many shared parts the rows before have together
    shared_parts,  # float32 [shared parts, H, PART_HEADER + D], row by row
    parts,  # scratch float32 [pieces, H, PART_HEADER + D]; with 0 pieces whole rows are shared among the threads
    output,  # [M, H · D] float32
):
    """Attention of many rows, shared among the threads.

    A few rows are too few to keep all threads busy: then `parts` has room, and the pieces of their contexts are shared.
    """
    literally(head_dim)
    literally(group)
    literally(at_once)
    literally(kind)
    num_rows = output.shape[0]
    num_heads = output.shape[1] // head_dim
    scores = np.empty((num_heads, PIECE_TOKENS), np.float32)
    part = np.empty((num_heads, PART_HEADER + head_dim), np.float32)
    merged = np.empty((num_heads, PART_HEADER + head_dim), np.float32)
    by_piece = parts.shape[0] > 0
    if by_piece:
        for item in items(counters, stage, piece_starts[num_rows], 1):
            row = 0
            while item >= piece_starts[row + 1]:
                row += 1
            first_token = first_of(context_lens[row], window, own_starts[row])
            attend_piece(head_dim, group, at_once, kind,
                         query[row, : num_heads * head_dim].reshape(num_heads, head_dim), keys, values, block_stride,
                         block_tables[table_rows[row]], first_token // PIECE_TOKENS + item - piece_starts[row],
                         first_token, context_lens[row], scores, parts[item])  # fmt: skip
    for row in items(counters, stage + 1, num_rows, 1):
        first_item, first_shared = piece_starts[row], shared_starts[row]
        num_shared = shared_starts[row + 1] - first_shared
        for i in range(num_shared):
            merge_part(shared_parts[first_shared + i], merged, i == 0)
        for item in range(first_item, piece_starts[row + 1]):
            is_first = item == first_item and num_shared == 0
            if by_piece:
                merge_part(parts[item], merged, is_first)
            else:
                first_token = first_of(context_lens[row], window, own_starts[row])
                attend_piece(head_dim, group, at_once, kind,
                             query[row, : num_heads * head_dim].reshape(num_heads, head_dim), keys, values,
                             block_stride, block_tables[table_rows[row]],
                             first_token // PIECE_TOKENS + item - first_item, first_token, context_lens[row],
                             scores, part)  # fmt: skip
                merge_part(part, merged, is_first)
        if piece_starts[row + 1] > first_item:
            normalise(merged, output[row])
        else:
            for i in range(output.shape[1]):
                output[row, i] = np.float32(0.0)  # a context of 0 tokens is padding


def count_pieces(
    context_lens: NDArray[np.int64],  # [M]
    window: int,  # 0 is none
    own_starts: NDArray[np.int64],  # [M], the first token of each context that its row sees by itself
) -> NDArray[np.int64]:  # [M + 1]
    """How many pieces the rows before each row have together."""
    firsts = np.maximum(own_starts, context_lens - window) if window else own_starts
    counts = (context_lens + PIECE_TOKENS - 1) // PIECE_TOKENS - firsts // PIECE_TOKENS
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(counts)))


count_pieces_compiled = compiled()(count_pieces)
"""The same for compiled functions."""
