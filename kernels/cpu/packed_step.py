"""The whole forward pass of a decoder with packed weights, as one compiled call.

Between the token ids and the last norm there are about ten small operations a layer. Called one by one from Python they
cost more than they compute; here a step is one call, the interpreter lock is free meanwhile, and the threads share
every operation through the counters of work_sharing.py.
"""

from collections.abc import Callable
from functools import cache

import numpy as np

from . import amx
from .amx_prefix import attend_alone, prefix_scratch
from .byte_tiles import AT_ONCE, SCRATCH_BYTES, byte_tile_shapes_compiled
from .packed_linear import gated_linear, linear
from .paged_attention import attend_rows
from .prompt_attention import attend_prompts, prompt_scratch
from .rounding import quantise_row
from .row_stages import finish_rows, norm_and_round_rows, round_rows
from .rows import norm_row
from .shared_pieces import attend_pieces, piece_scratch
from .simd import SOURCE_STAMP, compiled
from .tile_rows import GROUP
from .work_sharing import items

STAGES_PER_LAYER = 12
FINAL_STAGES = 2


def num_stages(num_layers: int) -> int:
    """Rows of counters that a step needs."""
    return STAGES_PER_LAYER * num_layers + FINAL_STAGES


@cache
def compile_step(
    head_dim: int,
    group: int,
    at_once: int,
    kind: int,
    bits: int,
    head_bits: int,
    shared_terms: int,
    byte_tiles: int,
    bfloat_dots: int,
    middle: int,
) -> Callable[..., None]:
    """The step for one model shape; Numba keeps what it compiles on disk, so only the first start ever waits.

    The numbers are compiled in: they decide which values stay in registers. `shared_terms` says how exactly blocks that
    rows share are attended to by matrix tiles (amx.py); with 0 pieces are, by vectors (shared_pieces.py). `byte_tiles`
    is 1 where the process may use such (byte_tiles.py), `bfloat_dots` 1 where `prompts` are attended to in bfloat16
    (prompt_attention.py), and `middle` that of the weights where rows may be coarse (row_spans.py), else 0.
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
        prompts,  # [chunks, 2] int64 of plan_prompts: the last rows, or none
        last_prompts,  # those of them that the last layer computes
        spans,  # of RowSpans, as are the next two
        last_spans,
        are_coarse,
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
        quants,  # scratch int8 [M padded to 8, ACTIVATION_BYTES, max(W, H D)]
        scales,  # scratch float32 [M, max(W, H D) / 32]
        sums,
        gated_quants,  # scratch int8 [M padded to 8, ACTIVATION_BYTES, I]
        gated_scales,  # scratch float32 [M, I / 32]
        gated_sums,
        qkv,  # scratch float32 [M, padded (H + 2 K) D]
        attended,  # scratch float32 [M, H D]
        narrow,  # scratch float32 [M, padded W], zeros at first
        parts,  # scratch float32 [pieces, H, PART_HEADER + D]
        shared_parts,  # scratch float32 [members, H, PART_HEADER + D]
    ):
        _ = stamp
        num_rows, width = total.shape
        num_layers = weights[0].shape[0]
        query_width = attended.shape[1]
        num_heads = query_width // head_dim
        num_kv_heads = num_heads // group
        activation = np.empty(width, np.float32)
        strip = amx.aligned_floats(AT_ONCE * 2 * GROUP).reshape(AT_ONCE, 2 * GROUP)
        byte_memory = amx.aligned_floats(byte_tiles * SCRATCH_BYTES // 4)
        scratch = np.uint64(byte_memory.ctypes.data)
        shapes = byte_tile_shapes_compiled()
        shapes_at = np.uint64(shapes.ctypes.data)
        if byte_tiles:
            amx.configure(shapes_at)
        segments, members, own_starts, part_starts = prefixes
        # Numba leaves out the branch that isn't taken before it compiles what is called.
        if shared_terms:
            prefix_memory = prefix_scratch(group, num_kv_heads, head_dim, segments.shape[0] > 0)
        else:
            prefix_memory = piece_scratch(head_dim, segments.shape[0] > 0)
        num_alone = num_rows - prompts[:, 1].sum()
        prompt_memory = prompt_scratch(head_dim, group, num_alone < num_rows)
        for layer in range(num_layers):
            stage = STAGES_PER_LAYER * layer
            keys = cache_address + np.uint64(layer) * layer_stride
            values = keys + value_offset

            norm_and_round_rows(middle, counters, stage, total, narrow, norms[0][layer], eps, activation,
                                are_coarse, quants, scales, sums)  # fmt: skip

            linear(bits, byte_tiles, middle, counters, stage + 1, spans, weights[0][layer], biases[0][layer],
                   quants, scales, sums, qkv, scratch)  # fmt: skip

            finish_rows(kind, head_dim, counters, stage + 2, qkv, num_heads, num_kv_heads, norms[2][layer],
                        norms[3][layer], eps, ropes[layer], cos, sin, positions, scale, keys, values, block_stride,
                        slots)  # fmt: skip

            if shares[layer] and segments.shape[0]:
                if shared_terms:
                    attend_alone(head_dim, shared_terms, counters, stage + 3, segments, members, group, num_kv_heads,
                                 qkv, keys, values, block_stride, block_tables, table_rows, prefix_memory,
                                 shared_parts)  # fmt: skip
                    if byte_tiles:
                        amx.configure(shapes_at)
                else:
                    attend_pieces(head_dim, at_once, kind, counters, stage + 3, segments, members, group,
                                  num_kv_heads, qkv, keys, values, block_stride, block_tables, table_rows,
                                  prefix_memory, shared_parts)  # fmt: skip
            num_here = num_alone if shares[layer] else num_rows
            starts = piece_starts[min(layer, piece_starts.shape[0] - 1)]
            attend_rows(head_dim, group, at_once, kind, counters, stage + 4, qkv, keys, values, block_stride,
                        block_tables, table_rows, context_lens, windows[layer], starts, own_starts[shares[layer]],
                        part_starts[shares[layer]], shared_parts, parts, attended[:num_here])  # fmt: skip
            # Numba leaves out the branch that isn't taken before it compiles what is called.
            if bfloat_dots:  # noqa: SIM102
                if num_here < num_rows:
                    seen = prompts if layer < num_layers - 1 else last_prompts
                    attend_prompts(head_dim, counters, stage + 6, seen, group, num_kv_heads, qkv, keys, values,
                                   block_stride, block_tables, table_rows, context_lens, prompt_memory,
                                   attended)  # fmt: skip

            round_rows(middle, counters, stage + 7, attended, are_coarse, quants, scales, sums)

            # Behind the last layer's keys and values only the rows with logits are looked at.
            wanted = spans if layer < num_layers - 1 else last_spans
            linear(bits, byte_tiles, middle, counters, stage + 8, wanted, weights[1][layer], biases[1][layer],
                   quants, scales, sums, narrow, scratch)  # fmt: skip

            norm_and_round_rows(middle, counters, stage + 9, total, narrow, norms[1][layer], eps, activation,
                                are_coarse, quants, scales, sums)  # fmt: skip

            gated_linear(bits, byte_tiles, middle, counters, stage + 10, wanted, weights[2][layer],
                         biases[2][layer], quants, scales, sums, scratch, strip, gated_quants, gated_scales,
                         gated_sums)  # fmt: skip

            linear(bits, byte_tiles, middle, counters, stage + 11, wanted, weights[3][layer], biases[3][layer],
                   gated_quants, gated_scales, gated_sums, narrow, scratch)  # fmt: skip

        stage = STAGES_PER_LAYER * num_layers
        num_logits = logits_rows.shape[0]
        logits_span = np.array([[0, 0, num_logits]])
        for item in items(counters, stage, num_logits, 1):
            row = logits_rows[item]
            norm_row(0, 0, total[row], narrow[row], final_norm, activation, eps)
            quantise_row(activation, quants[item], scales[item], sums[item])
        linear(head_bits, byte_tiles, 0, counters, stage + 1, logits_span, head, activation[:0], quants, scales, sums,
               logits, scratch)  # fmt: skip
        if byte_tiles:
            amx.release()
        return byte_memory.size + shapes.size  # kept until here, for only their addresses were used

    return step
