"""The whole forward pass of a decoder with packed weights for many rows, by matrix tiles, as one compiled call.

What packed_step.py does for a few rows, with the same weights and blocks. Activations go from one product to the next
as tiles of bfloat16; heads, gates and ups never leave a core's cache, and products add to the residual sum in place.
`terms` says how exactly (amx.py).
"""

from collections.abc import Callable
from functools import cache

import numpy as np

from . import amx
from .amx import COLUMNS, ROWS, TILE_BYTES
from .amx_attention import attend_chunks, scratch_floats
from .amx_heads import SCRATCH_ROWS, project_heads
from .amx_layout import num_parts_of, store_row
from .amx_linear import STRIP, add_linear, gated_linear
from .amx_prefix import attend_shared, prefix_scratch
from .packed_linear import linear as packed_linear
from .packed_linear import quantise_row
from .paged_attention import attend_rows
from .rows import norm_only
from .simd import LANES, SOURCE_STAMP, compiled
from .work_sharing import items

STAGES_PER_LAYER = 11
FINAL_STAGES = 2
EXACT = 3  # of amx.py's terms, for what a decoding row sees
LOG2_E = np.float32(1.4426950408889634)  # scores are powers of 2 here


def num_stages(num_layers: int) -> int:
    """Rows of counters that a step needs."""
    return STAGES_PER_LAYER * num_layers + FINAL_STAGES


@cache
def compile_step(
    head_dim: int, group: int, at_once: int, kind: int, bits: int, head_bits: int, levels: int, terms: int
) -> Callable[..., None]:
    """The step for one model shape, as `packed_step.compile_step`."""

    stamp = SOURCE_STAMP

    @compiled(cache=True)
    def step(  # type: ignore[no-untyped-def]
        counters,  # [stages, ROW], a fresh one for every step
        total,  # [padded M, W] float32: embeddings in, residual sum out
        positions,  # [M] int64
        slots,  # [M] int64
        table_rows,  # [M] int64, the row of block_tables that each token reads
        block_tables,  # [S, max_blocks] int32
        context_lens,  # [M] int64
        num_decodes,  # rows at the front that are sequences of their own
        piece_starts,  # [L or 1, num_decodes + 1] int64, count_pieces of each layer's window
        prefixes,  # of PrefixPlan, of the rows that decode: segments, members, own_starts, part_starts
        shares,  # [L] int64, 1 where the rows see their contexts from the start
        chunks,  # [chunks, 2] of plan_chunks, of the other rows
        last_chunks,  # those of them that the last layer needs
        first_logits_group,  # of 16 rows, the first that gives logits
        num_blocks,  # of rows: int64 [4], count_blocks of each product
        logits_rows,  # [R] int64
        logits,  # [R, padded vocabulary] float32
        num_kv_heads,
        weights,  # packed qkv, output, gate_up, down: each uint8 [L, tiles, groups, bytes]
        biases,  # the same four: each float32 [L, padded rows] or [L, 0]
        norms,  # attention, mlp: float32 [L, W]; query, key: float32 [L, D] or [L, 0]
        final_norm,  # [W] float32
        head,  # packed [tiles, groups, bytes]
        windows,  # [L] int64, 0 without one
        ropes,  # [L] bool
        cos,  # [positions, D / 2] float32
        sin,
        eps,
        scale,
        cache_address,
        layer_stride,  # bytes
        block_stride,
        value_offset,  # bytes from a block's keys to its values
        shapes,  # amx.tile_shapes
        activations,  # scratch tiles [M / 16, W / 32, …]
        attended,  # scratch tiles [M / 16, H D / 32, …]
        gated,  # scratch tiles [M / 16, I / 32, …]
        queries,  # scratch bfloat16 as uint8 [H, parts, query_rows, D]
        query_rows,
        decode_queries,  # scratch float32 [num_decodes, H D]
        quants,  # scratch int8 [R, levels, W], as are the next two for the head
        scales,  # scratch float32 [R, W / 32]
        sums,
        decoded,  # scratch float32 [num_decodes, H D]
        parts,  # scratch float32 [pieces, H, PART_HEADER + D]
        shared_parts,  # scratch float32 [members, H, PART_HEADER + D]
    ):
        _ = stamp
        num_rows, width = positions.shape[0], total.shape[1]
        num_layers = weights[0].shape[0]
        num_heads = group * num_kv_heads
        query_width = num_heads * head_dim
        inner = LANES * weights[2].shape[1] // 2
        activations_at, attended_at = np.uint64(activations.ctypes.data), np.uint64(attended.ctypes.data)
        gated_at, queries_at = np.uint64(gated.ctypes.data), np.uint64(queries.ctypes.data)
        # Of what is unpacked at once: a head's projection, or 32 outputs of another product.
        head_groups, most_groups = head_dim // COLUMNS * (width // COLUMNS), max(query_width, inner) // COLUMNS
        tile_floats = num_parts_of(terms) * TILE_BYTES // 4
        strip_weights = amx.aligned_floats(max(head_groups, most_groups) * STRIP * tile_floats)
        heads = amx.aligned_floats(SCRATCH_ROWS * head_dim).reshape(SCRATCH_ROWS, head_dim)
        strip = amx.aligned_floats(2 * ROWS * 2 * ROWS).reshape(2 * ROWS, 2 * ROWS)
        attention_scratch = amx.aligned_floats(scratch_floats(group, head_dim))
        activation = np.empty(width, np.float32)
        segments, members, own_starts, part_starts = prefixes
        prefix_memory = prefix_scratch(group, num_kv_heads, head_dim, segments.shape[0] > 0)
        amx.configure(np.uint64(shapes.ctypes.data))
        for layer in range(num_layers):
            stage = STAGES_PER_LAYER * layer
            keys = cache_address + np.uint64(layer) * layer_stride
            values = keys + value_offset

            for row in items(counters, stage, num_rows, ROWS):
                norm_only(total[row], norms[0][layer], activation, eps)
                store_row(terms, activation, activations_at, width, row)

            project_heads(head_dim, terms, bits, kind, counters, stage + 1, num_blocks[0], weights[0][layer],
                          biases[0][layer], activations_at, num_heads, num_kv_heads, norms[2][layer],
                          norms[3][layer], eps, ropes[layer], cos, sin, positions, slots, num_decodes, scale,
                          scale * LOG2_E, keys, values, block_stride, strip_weights, heads, decode_queries,
                          queries_at, query_rows)  # fmt: skip

            if shares[layer] and segments.shape[0]:
                attend_shared(head_dim, EXACT, counters, stage + 2, segments, members, group, num_kv_heads,
                              decode_queries, keys, values, block_stride, block_tables, table_rows, prefix_memory,
                              shared_parts)  # fmt: skip
            if num_decodes:
                starts = piece_starts[min(layer, piece_starts.shape[0] - 1)]
                attend_rows(head_dim, group, at_once, kind, counters, stage + 3, decode_queries, keys, values,
                            block_stride, block_tables, table_rows, context_lens, windows[layer], starts,
                            own_starts[shares[layer]], part_starts[shares[layer]], shared_parts, parts,
                            decoded)  # fmt: skip
                for row in items(counters, stage + 5, num_decodes, 1):
                    store_row(terms, decoded[row], attended_at, query_width, row)
            here = chunks if layer < num_layers - 1 else last_chunks
            attend_chunks(head_dim, terms, counters, stage + 6, here, group, num_kv_heads, queries_at, query_rows,
                          positions, keys, values, block_stride, block_tables, table_rows, windows[layer],
                          attention_scratch, attended_at)  # fmt: skip

            # Nothing after the last layer's attention looks at rows that give no logits.
            first_group = 0 if layer < num_layers - 1 else first_logits_group
            if ROWS * first_group >= num_rows:
                break

            add_linear(terms, bits, counters, stage + 7, num_blocks[1], weights[1][layer], biases[1][layer],
                       attended_at, first_group, num_rows, strip_weights, total)  # fmt: skip

            first_row = ROWS * first_group
            for item in items(counters, stage + 8, num_rows - first_row, ROWS):
                row = first_row + item
                norm_only(total[row], norms[1][layer], activation, eps)
                store_row(terms, activation, activations_at, width, row)

            gated_linear(terms, bits, counters, stage + 9, num_blocks[2], weights[2][layer], biases[2][layer],
                         activations_at, first_group, num_rows, strip_weights, strip, gated_at)  # fmt: skip

            add_linear(terms, bits, counters, stage + 10, num_blocks[3], weights[3][layer], biases[3][layer], gated_at,
                       first_group, num_rows, strip_weights, total)  # fmt: skip
        amx.release()

        stage = STAGES_PER_LAYER * num_layers
        num_logits = logits_rows.shape[0]
        for item in items(counters, stage, num_logits, 1):
            row = logits_rows[item]
            norm_only(total[row], final_norm, activation, eps)
            quantise_row(levels, activation, quants[item], scales[item], sums[item])
        packed_linear(head_bits, levels, 0, counters, stage + 1, head, activation[:0], quants, scales, sums, logits,
                      np.uint64(0))  # fmt: skip

    return step
