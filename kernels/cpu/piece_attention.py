"""Attention of one token over one piece of its paged context: the innermost loops.

Inside a block of one layer the keys are [K, D, B] and the values [K, B, D]: the 16 tokens of a block are the lanes of
the vectors that scores are computed in, the features those of the output. All heads of a block are read together,
front to back, and the heads of a group share every load.

Sums stay in registers. Where those are small or few, tokens and features are taken in turns; a lane's own sum has the
same order everywhere.
"""

import itertools
import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import literally, types
from numba.core import cgutils
from numba.extending import intrinsic

from . import simd
from .simd import CACHE_LINE, F32, FLOATS, I8, I32, I64, ITEM_SIZE, LANES, NUM_REGISTERS, REGISTER_LANES, compiled

BLOCK_SIZE = LANES
PIECE_BLOCKS = 16
PIECE_TOKENS = PIECE_BLOCKS * BLOCK_SIZE
PART_HEADER = LANES  # floats before a part's output: its largest score and its sum of weights
MAX_ACCUMULATORS = 24  # of outputs, in vectors of 16 lanes; a processor with smaller or fewer registers takes turns
REGISTER_ACCUMULATORS = NUM_REGISTERS * 3 // 4  # leaves some for what is multiplied


def heads_at_once(group: int, head_dim: int) -> int:
    """How many heads of a group have their outputs in registers together: a divisor of the group."""
    most = max(1, MAX_ACCUMULATORS // (head_dim // LANES))
    return max(heads for heads in range(1, min(group, most) + 1) if group % heads == 0)


def vectors_at_once(heads: int, head_dim: int) -> int:
    """How many registers of each head's outputs are summed together: a divisor of those that a head fills."""
    num_vectors = head_dim // REGISTER_LANES
    most = max(1, REGISTER_ACCUMULATORS // heads)
    return max(count for count in range(1, min(num_vectors, most) + 1) if num_vectors % count == 0)


def num_chains(heads: int) -> int:
    """Of the additions of a score, where so many heads are computed together: one waits for the result of the last."""
    return max(1, min(4, 12 // heads))


@intrinsic
def _block_scores(  # type: ignore[no-untyped-def]
    typing_context: Any, head_dim, heads, kind, query, keys, next_keys, scores, scores_stride
):
    """scores[head, 0:16] = query[head] · K over the 16 tokens of one block and one key head.

    `next_keys` is where the same head's keys of the next block begin: they are fetched meanwhile.
    """
    if not simd.are_literal(head_dim, heads, kind):
        return None
    width, num_heads, stored = head_dim.literal_value, heads.literal_value, kind.literal_value
    num_bytes = LANES * ITEM_SIZE[stored]

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        query, keys, next_keys, scores, scores_step = arguments[3:]
        for line in range(0, width * num_bytes, CACHE_LINE):
            pointer = builder.inttoptr(simd.at(builder, next_keys, line), I8.as_pointer())
            simd.call(builder, "llvm.prefetch.p0", ir.VoidType(), pointer, I32(0), I32(2), I32(1))
        num_sums = num_chains(num_heads)
        lanes = REGISTER_LANES
        with cgutils.for_range(builder, I64(LANES // lanes)) as parts:
            here = simd.at(builder, keys, builder.mul(parts.index, I64(lanes * ITEM_SIZE[stored])))
            chains = [[simd.floats(0.0, lanes)] * num_sums for _ in range(num_heads)]
            for feature in range(width):
                key = simd.load_floats(builder, simd.at(builder, here, feature * num_bytes), stored, lanes)
                for head in range(num_heads):
                    place = simd.at(builder, query, 4 * (head * width + feature))
                    factor = simd.splat(builder, simd.load(builder, place, F32), lanes)
                    chain = feature % num_sums
                    chains[head][chain] = simd.fma(builder, key, factor, chains[head][chain])
            for head, sums in enumerate(chains):
                total = sums[0]
                for other in sums[1:]:
                    total = builder.fadd(total, other)
                place = simd.at(builder, scores, builder.mul(scores_step, I64(head)))
                simd.store(builder, total, simd.at(builder, place, builder.mul(parts.index, I64(4 * lanes))))
        return context.get_dummy_value()

    return types.void(head_dim, heads, kind, *([types.uint64] * 5)), generate


@intrinsic
def softmax(typing_context: Any, scores, num_blocks, part):  # type: ignore[no-untyped-def]
    """Scores of whole blocks become exp(score - largest); part[0] gets the largest, part[1] the sum."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        scores, num_blocks, part = arguments
        largest = simd.variable(builder, simd.floats(-math.inf))
        total = simd.variable(builder, simd.floats(0.0))
        with cgutils.for_range(builder, num_blocks) as loop:
            block = simd.load(builder, simd.at(builder, scores, builder.mul(loop.index, I64(4 * LANES))), FLOATS)
            builder.store(simd.maximum(builder, builder.load(largest), block), largest)
        top = simd.lanes_max(builder, builder.load(largest))
        tops = simd.splat(builder, top)
        with cgutils.for_range(builder, num_blocks) as loop:
            place = simd.at(builder, scores, builder.mul(loop.index, I64(4 * LANES)))
            weights = simd.exp(builder, builder.fsub(simd.load(builder, place, FLOATS), tops))
            simd.store(builder, weights, place)
            builder.store(builder.fadd(builder.load(total), weights), total)
        simd.store(builder, top, part)
        simd.store(builder, simd.lanes_sum(builder, builder.load(total)), simd.at(builder, part, 4))
        return context.get_dummy_value()

    return types.void(*([types.uint64] * 3)), generate


@intrinsic
def _weighted_values(  # type: ignore[no-untyped-def]
    typing_context: Any,
    head_dim,
    heads,
    kind,
    weights,
    weights_stride,
    values,
    block_stride,
    block_ids,
    num_blocks,
    num_last_tokens,
    output,
    output_stride,
):
    """output[head, :] = Σ over tokens of weights[head, token] · V[token, :], for one value head.

    Tokens beyond `num_last_tokens` of the last block are never read: their slots may hold NaN.
    """
    if not simd.are_literal(head_dim, heads, kind):
        return None
    width, num_heads, stored = head_dim.literal_value, heads.literal_value, kind.literal_value
    lanes, num_bytes = REGISTER_LANES, ITEM_SIZE[stored]
    num_vectors = vectors_at_once(num_heads, width)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        (weights, weights_step, values, block_step, block_ids, num_blocks, num_last, output, output_step) = arguments[
            3:
        ]
        zeros = simd.floats(0.0, lanes)
        totals = [[simd.variable(builder, zeros) for _ in range(num_vectors)] for _ in range(num_heads)]

        def add_token(token_values: Any, token_weights: Any) -> None:
            row = [
                simd.load_floats(builder, simd.at(builder, token_values, i * lanes * num_bytes), stored, lanes)
                for i in range(num_vectors)
            ]
            for head in range(num_heads):
                place = simd.at(builder, token_weights, builder.mul(weights_step, I64(head)))
                factor = simd.splat(builder, simd.load(builder, place, F32), lanes)
                for total, vector in zip(totals[head], row, strict=True):
                    builder.store(simd.fma(builder, vector, factor, builder.load(total)), total)

        with cgutils.for_range(builder, I64(width // (num_vectors * lanes))) as parts:
            feature = builder.mul(parts.index, I64(num_vectors * lanes))
            for total in itertools.chain.from_iterable(totals):
                builder.store(zeros, total)
            with cgutils.for_range(builder, num_blocks) as loop:
                id_place = simd.at(builder, block_ids, builder.mul(loop.index, I64(4)))
                block_id = builder.zext(simd.load(builder, id_place, I32), I64)
                block = simd.at(builder, values, builder.mul(block_id, block_step))
                block = simd.at(builder, block, builder.mul(feature, I64(num_bytes)))
                block_weights = simd.at(builder, weights, builder.mul(loop.index, I64(4 * LANES)))
                is_last = builder.icmp_unsigned("==", builder.add(loop.index, I64(1)), num_blocks)
                num_tokens = builder.select(is_last, num_last, I64(LANES))
                with builder.if_else(builder.icmp_unsigned("==", num_tokens, I64(LANES))) as (whole, partial):
                    with whole:
                        for token in range(LANES):
                            add_token(
                                simd.at(builder, block, token * width * num_bytes),
                                simd.at(builder, block_weights, 4 * token),
                            )
                    with partial, cgutils.for_range(builder, num_tokens) as token_loop:
                        add_token(
                            simd.at(builder, block, builder.mul(token_loop.index, I64(width * num_bytes))),
                            simd.at(builder, block_weights, builder.mul(token_loop.index, I64(4))),
                        )
            for head in range(num_heads):
                for i, total in enumerate(totals[head]):
                    place = simd.at(builder, output, builder.mul(output_step, I64(head)))
                    place = simd.at(builder, place, builder.mul(feature, I64(4)))
                    simd.store(builder, builder.load(total), simd.at(builder, place, 4 * lanes * i))
        return context.get_dummy_value()

    return types.void(head_dim, heads, kind, *([types.uint64] * 9)), generate


@compiled()
def attend_piece(  # type: ignore[no-untyped-def]
    head_dim,  # literal
    group,  # query heads for each key head, literal
    at_once,  # heads_at_once(group, head_dim), literal
    kind,  # of the cache, literal
    query,  # [H, D] float32, scaled
    keys,  # address of the layer's keys in block 0
    values,  # address of the layer's values in block 0
    block_stride,  # bytes from block to block
    block_ids,  # [max_blocks] int32
    piece,
    first_token,  # of the context that is seen
    num_tokens,  # of the context
    scores,  # [H, PIECE_TOKENS] float32, for our use
    parts,  # [H, PART_HEADER + D] float32: largest score, sum of weights, …, unnormalised output
):
    """One piece of one token's context, for all its heads."""
    literally(head_dim)
    literally(group)
    literally(at_once)
    literally(kind)
    num_kv_heads = query.shape[0] // group
    # Blocks that aren't seen are left out: their weights of 0 would change no sum.
    first_block = max(piece * PIECE_BLOCKS, first_token // BLOCK_SIZE)
    last_block = min((piece + 1) * PIECE_BLOCKS, (num_tokens + BLOCK_SIZE - 1) // BLOCK_SIZE)
    num_blocks = last_block - first_block
    num_here = min(num_tokens, (piece + 1) * PIECE_TOKENS) - first_block * BLOCK_SIZE
    num_hidden = max(first_token - first_block * BLOCK_SIZE, 0)
    item = 4 if kind == 0 else 2
    head_bytes = np.uint64(head_dim * BLOCK_SIZE * item)
    row_bytes = np.uint64(4 * PIECE_TOKENS)
    # Addresses are worked out here: every slice of an array would count a reference, in memory that all threads share.
    query_at, query_bytes = np.uint64(query.ctypes.data), np.uint64(4 * head_dim)
    scores_at, parts_at = np.uint64(scores.ctypes.data), np.uint64(parts.ctypes.data)
    part_bytes = np.uint64(parts.strides[0])
    for block in range(first_block, last_block):
        block_keys = keys + np.uint64(block_ids[block]) * block_stride
        next_keys = keys + np.uint64(block_ids[min(block + 1, last_block - 1)]) * block_stride
        column_at = scores_at + np.uint64(4 * BLOCK_SIZE * (block - first_block))
        for kv_head in range(num_kv_heads):
            offset = np.uint64(kv_head) * head_bytes
            for head in range(kv_head * group, (kv_head + 1) * group, at_once):
                _block_scores(head_dim, at_once, kind, query_at + np.uint64(head) * query_bytes, block_keys + offset,
                              next_keys + offset, column_at + np.uint64(head) * row_bytes, row_bytes)  # fmt: skip
    for head in range(query.shape[0]):
        for token in range(num_hidden):
            scores[head, token] = -np.inf
        for token in range(num_here, num_blocks * BLOCK_SIZE):
            scores[head, token] = -np.inf
        softmax(scores_at + np.uint64(head) * row_bytes, np.uint64(num_blocks), parts_at + np.uint64(head) * part_bytes)
    ids = np.uint64(block_ids.ctypes.data) + np.uint64(4 * first_block)
    num_last = np.uint64(num_here - (num_blocks - 1) * BLOCK_SIZE)
    for kv_head in range(num_kv_heads):
        head_values = values + np.uint64(kv_head) * head_bytes
        for head in range(kv_head * group, (kv_head + 1) * group, at_once):
            _weighted_values(head_dim, at_once, kind, scores_at + np.uint64(head) * row_bytes, row_bytes, head_values,
                             block_stride, ids, np.uint64(num_blocks), num_last,
                             parts_at + np.uint64(head) * part_bytes + np.uint64(4 * PART_HEADER),
                             part_bytes)  # fmt: skip
