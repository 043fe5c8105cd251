"""Decoding several replies to one long prompt: with the prompt's blocks read once for all, and by each reply.

    python tests/benchmarks/shared_prefix.py
    python tests/benchmarks/shared_prefix.py --prompts 500 2000 4000 --replies 8 --rounds 3

One engine, in turns. A round is one request; its time is that of the steps after the prompt's own, sampling included.
"""

import argparse
import itertools
import statistics
import time
from typing import Any

from paged_chat.engine import Engine, EngineConfig, SamplingParams


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--prompts", type=int, nargs="+", default=[500, 2000, 4000], metavar="TOKENS")
    parser.add_argument("--replies", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=48, help="of each reply")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with Engine(EngineConfig(model=options.model, device="cpu")) as engine:
        runner: Any = engine._open_core()._runner  # there is no setting for it: it is on where it pays
        rule = runner.sharing
        print(f"{options.replies} replies; as measured at load: {rule}; tokens/s of all together\n")
        print("| prompt | each reads all | read once | ratio |")
        print("|---:|---:|---:|---:|")
        for num_tokens in options.prompts:
            prompt = [100 + 37 * i % 40000 for i in range(num_tokens)]
            speeds: tuple[list[float], list[float]] = ([], [])
            decode_speed(engine, prompt, options.replies, 2)  # the prompt's blocks are there from here on
            for _ in range(options.rounds):
                for setting, found in zip((None, rule), speeds, strict=True):
                    runner.sharing = setting
                    found.append(decode_speed(engine, prompt, options.replies, options.tokens))
            ratios = [once / each for each, once in zip(*speeds, strict=True)]
            shown = [f"{statistics.median(found):.0f}" for found in speeds]
            each_ratio = ", ".join(f"{ratio:.2f}" for ratio in ratios)
            print(f"| {num_tokens:,} | {shown[0]} | {shown[1]} | {statistics.median(ratios):.2f} ({each_ratio}) |")


def decode_speed(engine: Engine, prompt: list[int], num_replies: int, num_tokens: int) -> float:
    """Tokens a second of all replies, from the median step."""
    engine.submit(
        prompt, SamplingParams(n=num_replies, max_tokens=num_tokens, temperature=1.0, seed=1, ignore_eos=True)
    )
    steps = []
    while engine.has_unfinished:
        started = time.perf_counter()
        deltas = engine.step()
        if len(deltas) == num_replies:
            steps.append(time.perf_counter() - started)
    return num_replies / statistics.median(itertools.islice(steps, 1, None))


if __name__ == "__main__":
    main()
