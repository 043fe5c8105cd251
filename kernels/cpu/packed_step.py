"""The whole forward pass of a decoder with packed weights, as one compiled call.

Between the token ids and the last norm there are about ten small operations a layer. Called one by one from Python they
cost more than they compute; here a step is one call, the interpreter lock is free meanwhile, and the threads share
every operation through the counters of work_sharing.py.
"""

from collections.abc import Callable
from functools import cache

import numpy as np

from .amx_prefix import attend_alone, prefix_scratch
from .packed_linear import linear, quantise_row
from .paged_attention import attend_rows
from .rows import finish_heads, norm_row, silu_mul_row
from .simd import SOURCE_STAMP, compiled
from .work_sharing import items

STAGES_PER_LAYER = 12
FINAL_STAGES = 2


def num_stages(num_layers: int) -> int:
    """Rows of counters that a step needs."""
    return STAGES_PER_LAYER * num_layers + FINAL_STAGES


@cache
def compile_step(
    head_dim: int, group: int, at_once: int, kind: int, bits: int, head_bits: int, levels: int, shared_terms: int
) -> Callable[..., None]:
    """The step for one model shape; Numba keeps what it compiles on disk, so only the first start ever waits.

    The numbers are compiled in: they decide which values stay in registers. `shared_terms` says how exactly blocks that
    rows share are attended to by matrix tiles (amx.py); 0 leaves that out, and every row reads its whole context.
    """

    stamp = SOURCE_STAMP

    @compiled(cache=True)
    def step(  # type: ignore[no-untyped-def]
        counters,  # [stages, ROW], a fresh one for every step
        total,  # [M, W] float32: embeddings in, residual sum out
        positions,  # [M] int64
        slots,  # [M] int64
        table_rows,  # [M] int64, the row of block_tables that each token reads
        block_tables,  # [S, max_blocks] int32
        context_lens,  # [M] int64
        piece_starts,  # [L or 1, M + 1] int64, count_pieces of each layer's window
        prefixes,  # of PrefixPlan: segments, members, own_starts, part_starts
        shares,  # [L] int64, 1 where the rows see their contexts from the start
        logits_rows,  # [R] int64
        logits,  # [R, padded vocabulary] float32
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
        quants,  # scratch int8 [M, levels, widest]
        scales,  # scratch float32 [M, widest / 32]
        sums,
        qkv,  # scratch float32 [M, padded (H + 2 K) D]
        attended,  # scratch float32 [M, H D]
        narrow,  # scratch float32 [M, padded W], zeros at first
        wide,  # scratch float32 [M, 2 I]
        parts,  # scratch float32 [pieces, H, PART_HEADER + D]
        shared_parts,  # scratch float32 [members, H, PART_HEADER + D]
    ):
        _ = stamp
        num_rows, width = total.shape
        num_layers = weights[0].shape[0]
        query_width = attended.shape[1]
        num_heads = query_width // head_dim
        num_kv_heads = num_heads // group
        inner = wide.shape[1] // 2
        activation = np.empty(max(inner, width), np.float32)
        segments, members, own_starts, part_starts = prefixes
        prefix_memory = prefix_scratch(group, num_kv_heads, head_dim, segments.shape[0] > 0)
        for layer in range(num_layers):
            stage = STAGES_PER_LAYER * layer
            keys = cache_address + np.uint64(layer) * layer_stride
            values = keys + value_offset

            for row in items(counters, stage, num_rows, 1):
                norm_row(0, 0, total[row], narrow[row], norms[0][layer], activation[:width], eps)
                quantise_row(levels, activation[:width], quants[row], scales[row], sums[row])

            linear(bits, levels, counters, stage + 1, weights[0][layer], biases[0][layer], quants, scales, sums, qkv)

            for row in items(counters, stage + 2, num_rows, 1):
                finish_heads(kind, head_dim, qkv[row], num_heads, num_kv_heads, norms[2][layer], norms[3][layer], eps,
                             ropes[layer], cos, sin, positions[row], scale, keys, values, block_stride,
                             slots[row])  # fmt: skip

            # Where it is 0, Numba leaves the branch out before it compiles what is called.
            if shared_terms and shares[layer] and segments.shape[0]:
                attend_alone(head_dim, shared_terms, counters, stage + 3, segments, members, group, num_kv_heads, qkv,
                             keys, values, block_stride, block_tables, table_rows, prefix_memory,
                             shared_parts)  # fmt: skip
            starts = piece_starts[min(layer, piece_starts.shape[0] - 1)]
            attend_rows(head_dim, group, at_once, kind, counters, stage + 4, qkv, keys, values, block_stride,
                        block_tables, table_rows, context_lens, windows[layer], starts, own_starts[shares[layer]],
                        part_starts[shares[layer]], shared_parts, parts, attended)  # fmt: skip

            for row in items(counters, stage + 6, num_rows, 1):
                quantise_row(levels, attended[row], quants[row], scales[row], sums[row])

            linear(bits, levels, counters, stage + 7, weights[1][layer], biases[1][layer], quants, scales, sums, narrow)

            for row in items(counters, stage + 8, num_rows, 1):
                norm_row(0, 0, total[row], narrow[row], norms[1][layer], activation[:width], eps)
                quantise_row(levels, activation[:width], quants[row], scales[row], sums[row])

            linear(bits, levels, counters, stage + 9, weights[2][layer], biases[2][layer], quants, scales, sums, wide)

            for row in items(counters, stage + 10, num_rows, 1):
                silu_mul_row(0, wide[row], activation[:inner])
                quantise_row(levels, activation[:inner], quants[row], scales[row], sums[row])

            linear(
                bits, levels, counters, stage + 11, weights[3][layer], biases[3][layer], quants, scales, sums, narrow
            )

        stage = STAGES_PER_LAYER * num_layers
        num_logits = logits_rows.shape[0]
        for item in items(counters, stage, num_logits, 1):
            row = logits_rows[item]
            norm_row(0, 0, total[row], narrow[row], final_norm, activation[:width], eps)
            quantise_row(levels, activation[:width], quants[item], scales[item], sums[item])
        linear(head_bits, levels, counters, stage + 1, head, activation[:0], quants[:num_logits], scales[:num_logits],
               sums[:num_logits], logits)  # fmt: skip

    return step
