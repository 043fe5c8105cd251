"""What a layer does with each row by itself, by matrix tiles: all but attention.

Rows are computed together, or a panel of them at a time. Together, threads share a product's outputs, and each unpacks
the weights of its own. A panel is one thread's from attention to attention: its rows stay in the core's second cache
all the way, and threads wait for each other only there; but each panel unpacks all weights, so panels are for many
rows.
"""

from numba import literally

from .amx import ROWS
from .amx_heads import project_heads
from .amx_layout import store_row
from .amx_linear import BLOCK_BYTES, add_linear, gated_linear
from .rows import norm_only
from .simd import compiled
from .work_sharing import items

LEAST_PANEL_ROWS = 128  # fewer aren't worth unpacking all weights for
ENTER_STAGES, LEAVE_STAGES = 2, 4


def count_panels(num_rows: int, width: int, num_threads: int) -> int:
    """Into how many panels rows are cut, as many for each thread; 0 where they are better computed together."""
    most_rows = BLOCK_BYTES // (2 * width)
    num_panels = num_threads * -(-num_rows // (num_threads * most_rows))
    return num_panels if num_rows >= num_panels * LEAST_PANEL_ROWS else 0


@compiled()
def enter_attention(  # type: ignore[no-untyped-def]
    head_dim, terms, bits, kind, counters, stage, num_blocks, total, norm, packed, bias, query_norm, key_norm,
    has_rope, eps, cos, sin, positions, slots, num_decodes, decode_scale, scale, keys, values, block_stride,
    first_group, num_rows, num_heads, num_kv_heads, activation, activations, strip_weights, heads, decode_queries,
    queries, query_rows
):  # fmt: skip
    """Rows from 16 `first_group` up to `num_rows`, normed and projected to heads; the rest as in `project_heads`.

    total: float32 [padded M, W]; norm: float32 [W]; activation: scratch of this thread, float32 [W].
    """
    literally(terms)
    first_row = ROWS * first_group
    for item in items(counters, stage, num_rows - first_row, ROWS):
        norm_only(total[first_row + item], norm, activation, eps)
        store_row(terms, activation, activations, activation.shape[0], first_row + item)
    project_heads(head_dim, terms, bits, kind, counters, stage + 1, num_blocks, packed, bias, activations, first_group,
                  num_rows, num_heads, num_kv_heads, query_norm, key_norm, eps, has_rope, cos, sin, positions,
                  slots, num_decodes, decode_scale, scale, keys, values, block_stride, strip_weights, heads,
                  decode_queries, queries, query_rows)  # fmt: skip


@compiled()
def leave_attention(  # type: ignore[no-untyped-def]
    terms, bits, counters, stage, num_blocks, total, packed, biases, layer, norms, eps, attended, first_group, num_rows,
    activation, activations, gated, strip_weights, strips
):  # fmt: skip
    """What was attended, projected onto the residual sum, and the gated layers after it.

    num_blocks: of each product, int64 [3]; packed and biases: of the output, gate and up, and down projections, of all
    layers, as are norms; attended: address of activations; the rest as in `enter_attention` and `gated_linear`.
    """
    literally(terms)
    literally(bits)
    add_linear(terms, bits, counters, stage, num_blocks[0], packed[0][layer], biases[0][layer], attended,
               first_group, num_rows, strip_weights, total)  # fmt: skip
    first_row = ROWS * first_group
    for item in items(counters, stage + 1, num_rows - first_row, ROWS):
        norm_only(total[first_row + item], norms[layer], activation, eps)
        store_row(terms, activation, activations, activation.shape[0], first_row + item)
    gated_linear(terms, bits, counters, stage + 2, num_blocks[1], packed[1][layer], biases[1][layer], activations,
                 first_group, num_rows, strip_weights, strips, gated)  # fmt: skip
    add_linear(terms, bits, counters, stage + 3, num_blocks[2], packed[2][layer], biases[2][layer], gated,
               first_group, num_rows, strip_weights, total)  # fmt: skip
