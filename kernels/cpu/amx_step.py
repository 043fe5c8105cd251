"""The whole forward pass of a decoder with packed weights for many rows, by matrix tiles, as one compiled call.

What packed_step.py does for a few rows, with the same weights and blocks. Activations go from one product to the next
as tiles of bfloat16; heads, gates and ups never leave a core's cache, and products add to the residual sum in place.
`terms` says how exactly (amx.py).
"""

from collections.abc import Callable
from functools import cache

import numpy as np

from . import amx
from .amx import EXACT, ROWS
from .amx_attention import attend_chunks, scratch_floats
from .amx_heads import scratch_rows
from .amx_layer import ENTER_STAGES, LEAVE_STAGES, enter_attention, leave_attention
from .amx_layout import store_row, tile_floats, tiles_base
from .amx_prefix import attend_shared, prefix_scratch
from .amx_strip import STRIP
from .packed_linear import linear as packed_linear
from .paged_attention import attend_rows
from .rounding import quantise_row
from .rows import norm_only
from .simd import LANES, LOG2_E, SOURCE_STAMP, compiled
from .work_sharing import ROW, items

STAGES_PER_LAYER, PANELS_STAGE = 12, 11
FINAL_STAGES = 2
SCORE_FACTOR = np.float32(LOG2_E)  # scores are powers of 2 here


def num_stages(num_layers: int) -> int:
    """Rows of counters that a step needs."""
    return STAGES_PER_LAYER * (num_layers + 1) + FINAL_STAGES


@compiled()
def panels_or_all(counters, stage, num_panels):  # type: ignore[no-untyped-def]
    """Yields the panels that are this thread's to do; where there are none, 0, for all rows together."""
    if num_panels:
        for panel in items(counters, stage, num_panels, 1):  # noqa: UP028
            yield panel
    else:
        yield 0


@cache
def compile_step(
    head_dim: int, group: int, at_once: int, kind: int, bits: int, head_bits: int, terms: int
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
        num_panels,  # of rows, count_panels
        panel_blocks,  # of a panel's rows, as num_blocks
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
        activations,  # scratch tiles [M / 16, W / 32, …]; with panels, of the rows from first_logits_group on
        attended,  # scratch tiles [M / 16, H D / 32, …]
        gated,  # scratch tiles [M / 16, I / 32, …], as activations
        queries,  # scratch bfloat16 as uint8 [H, parts, query_rows, D]
        query_rows,
        decode_queries,  # scratch float32 [num_decodes, H D]
        quants,  # scratch int8 [R, ACTIVATION_BYTES, W], as are the next two for the head
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
        attended_at, queries_at = np.uint64(attended.ctypes.data), np.uint64(queries.ctypes.data)
        num_row_groups = total.shape[0] // ROWS
        panel_groups = (num_row_groups + num_panels - 1) // num_panels if num_panels else 0
        panel_activations = amx.aligned_floats(tile_floats(terms, panel_groups, width))
        panel_gated = amx.aligned_floats(tile_floats(terms, panel_groups, inner))
        panel_counters = np.zeros((ENTER_STAGES + LEAVE_STAGES, ROW), np.int64)
        # Of what is unpacked at once: a head's projection, or 32 outputs of another product.
        strip_weights = amx.aligned_floats(
            max(tile_floats(terms, head_dim // LANES, width), tile_floats(terms, STRIP, max(query_width, inner)))
        )
        most_rows = ROWS * panel_groups if num_panels else scratch_rows(num_rows, num_blocks[0])
        heads = amx.aligned_floats(most_rows * head_dim)
        strips = amx.aligned_floats(2 * 2 * ROWS * STRIP * LANES)
        attention_scratch = amx.aligned_floats(scratch_floats(group, head_dim))
        activation = np.empty(width, np.float32)
        segments, members, own_starts, part_starts = prefixes
        prefix_memory = prefix_scratch(group, num_kv_heads, head_dim, segments.shape[0] > 0)
        amx.configure(np.uint64(shapes.ctypes.data))
        for layer in range(num_layers + 1):
            stage = STAGES_PER_LAYER * layer
            keys = cache_address + np.uint64(layer) * layer_stride
            values = keys + value_offset
            # Nothing after the last layer's attention looks at rows that give no logits.
            first_group = 0 if layer < num_layers else first_logits_group
            if ROWS * first_group >= num_rows:
                break
            panels_here = num_panels if layer < num_layers else 0
            for panel in panels_or_all(counters, stage + PANELS_STAGE, panels_here):
                last_row = num_rows
                if panels_here:
                    first_group = num_row_groups * panel // panels_here
                    last_row = min(ROWS * (num_row_groups * (panel + 1) // panels_here), num_rows)
                    panel_counters[:] = 0  # of this thread alone
                    here, first_stage, blocks = panel_counters, 0, panel_blocks
                    activations_at = tiles_base(terms, panel_activations, width, first_group)
                    gated_at = tiles_base(terms, panel_gated, inner, first_group)
                else:
                    here, first_stage, blocks = counters, stage, num_blocks
                    activations_at = tiles_base(terms, activations, width, first_group)
                    gated_at = tiles_base(terms, gated, inner, first_group)
                if layer:
                    leave_attention(terms, bits, here, first_stage, blocks[1:], total, weights[1:], biases[1:],
                                    layer - 1, norms[1], eps, attended_at, first_group, last_row, activation,
                                    activations_at, gated_at, strip_weights, strips)  # fmt: skip
                if layer < num_layers:
                    enter_attention(head_dim, terms, bits, kind, here, first_stage + LEAVE_STAGES, blocks[0], total,
                                    norms[0][layer], weights[0][layer], biases[0][layer], norms[2][layer],
                                    norms[3][layer], ropes[layer], eps, cos, sin, positions, slots, num_decodes, scale,
                                    scale * SCORE_FACTOR, keys, values, block_stride, first_group, last_row, num_heads,
                                    num_kv_heads, activation, activations_at, strip_weights, heads, decode_queries,
                                    queries_at, query_rows)  # fmt: skip
            if layer == num_layers:
                break

            if shares[layer] and segments.shape[0]:
                attend_shared(head_dim, EXACT, counters, stage + 6, segments, members, group, num_kv_heads,
                              decode_queries, keys, values, block_stride, block_tables, table_rows, prefix_memory,
                              shared_parts)  # fmt: skip
            if num_decodes:
                starts = piece_starts[min(layer, piece_starts.shape[0] - 1)]
                attend_rows(head_dim, group, at_once, kind, counters, stage + 7, decode_queries, keys, values,
                            block_stride, block_tables, table_rows, context_lens, windows[layer], starts,
                            own_starts[shares[layer]], part_starts[shares[layer]], shared_parts, parts,
                            decoded)  # fmt: skip
                for row in items(counters, stage + 9, num_decodes, 1):
                    store_row(terms, decoded[row], attended_at, query_width, row)
            seen = chunks if layer < num_layers - 1 else last_chunks
            attend_chunks(head_dim, terms, counters, stage + 10, seen, group, num_kv_heads, queries_at, query_rows,
                          positions, keys, values, block_stride, block_tables, table_rows, windows[layer],
                          attention_scratch, attended_at)  # fmt: skip
        amx.release()

        stage = STAGES_PER_LAYER * (num_layers + 1)
        num_logits = logits_rows.shape[0]
        for item in items(counters, stage, num_logits, 1):
            row = logits_rows[item]
            norm_only(total[row], final_norm, activation, eps)
            quantise_row(activation, quants[item], scales[item], sums[item])
        spans = np.array([[0, 0, num_logits]])
        packed_linear(head_bits, 0, 0, counters, stage + 1, spans, head, activation[:0], quants, scales, sums, logits,
                      np.uint64(0))  # fmt: skip

    return step
