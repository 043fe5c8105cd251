"""Attention of one new token: the cpu kernel over scattered blocks beside torch's over keys that lie together.

    python tests/benchmarks/decode_attention.py
    python tests/benchmarks/decode_attention.py --contexts 256 8192 --rounds 50

Both are called from Python, for each layer in turn, as often as the model has layers: then no layer's keys are still in
the caches from the round before. torch's scaled_dot_product_attention gets its best case: keys and values of one
sequence without gaps, and the query heads of a group folded into rows of one query. The two take turns.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch.nn.functional import scaled_dot_product_attention

from paged_chat.kernels import choose_backend

BLOCK_SIZE = 16


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--contexts", type=int, nargs="+", default=[256, 1024, 4096])
    parser.add_argument("--layers", type=int, default=30)
    parser.add_argument("--heads", type=int, nargs=3, default=[9, 3, 64], metavar=("QUERY", "KEY", "SIZE"))
    parser.add_argument("--rounds", type=int, default=30)
    options = parser.parse_args()
    print(f"{torch.get_num_threads()} threads, bfloat16, heads {options.heads}; all {options.layers} layers, in ms\n")
    print("| context | ours, median (best) | torch, median (best) | ours / torch |")
    print("|---:|---:|---:|---:|")
    with torch.inference_mode():
        for context_len in options.contexts:
            ours, theirs = layers_of(context_len, options.layers, *options.heads)
            times = in_turns(options.rounds, ours, theirs)
            shown = [f"{statistics.median(each):.2f} ({min(each):.2f})" for each in times]
            ratio = statistics.median(times[0]) / statistics.median(times[1])
            print(f"| {context_len:,} | {shown[0]} | {shown[1]} | {ratio:.2f} |")


def layers_of(
    context_len: int, num_layers: int, num_heads: int, num_kv_heads: int, head_dim: int
) -> tuple[Callable[[], None], Callable[[], None]]:
    """What attends in every layer: ours, and torch's."""
    backend = choose_backend("cpu", torch.device("cpu"))
    num_blocks = -(-context_len // BLOCK_SIZE)
    pool_blocks = 2 * num_blocks + 1  # scattered among as many others
    key_shape, value_shape = backend.kv_block_shapes(num_kv_heads, BLOCK_SIZE, head_dim)
    elements = num_kv_heads * BLOCK_SIZE * head_dim
    pool = torch.randn(num_layers, pool_blocks, 2, elements).bfloat16()
    caches = [(layer[:, 0].view(-1, *key_shape), layer[:, 1].view(-1, *value_shape)) for layer in pool]
    block_tables = (1 + torch.randperm(pool_blocks - 1)[:num_blocks])[None].int()
    context_lens = torch.tensor([context_len], dtype=torch.int32)
    together = torch.randn(num_layers, 2, 1, num_kv_heads, context_len, head_dim).bfloat16()
    query = torch.randn(1, num_heads, head_dim).bfloat16()
    folded = query.view(1, num_kv_heads, num_heads // num_kv_heads, head_dim)
    scale = head_dim**-0.5

    def ours() -> None:
        for key_cache, value_cache in caches:
            backend.attention_decode(query, key_cache, value_cache, block_tables, context_lens, scale, None)

    def theirs() -> None:
        for keys, values in together:
            scaled_dot_product_attention(folded, keys, values, scale=scale)

    return ours, theirs


def in_turns(rounds: int, *calls: Callable[[], None]) -> list[list[float]]:
    """Milliseconds of each call, in every round."""
    times: list[list[float]] = [[] for _ in calls]
    for call in calls:
        call()
    for _ in range(rounds):
        for call, spent in zip(calls, times, strict=True):
            started = time.perf_counter()
            call()
            spent.append((time.perf_counter() - started) * 1e3)
    return times


if __name__ == "__main__":
    main()
