"""Decoding with tokens guessed ahead beside decoding without, on one engine, in turns.

    python tests/benchmarks/speculation.py tests/workloads/quote.json tests/workloads/fresh.json

One engine, because two in a row differ by several per cent: their weights lie elsewhere in memory.
"""

import argparse
import statistics
from pathlib import Path

from paged_chat.app.bench.workload import Step, load_workload
from paged_chat.engine import Engine, EngineConfig, SamplingParams


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="+", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with Engine(EngineConfig()) as engine:
        for path in options.workloads:
            seconds: dict[str, list[float]] = {"off": [], "auto": []}
            print(f"{path.stem}: tokens a second without and with")
            for step in load_workload(path).steps:
                measure(engine, step, options.rounds, seconds)
            print(f"  all of it: {sum(seconds['off']) / sum(seconds['auto']):.3f} times as fast\n")


def measure(engine: Engine, step: Step, rounds: int, seconds: dict[str, list[float]]) -> None:
    """Each prompt is cached from a first run on, so that all that differs is the decoding."""
    scheduler = engine._open_core().scheduler
    drafter = scheduler.drafter
    params = SamplingParams(temperature=step.temperature, seed=step.seed, max_tokens=step.reply_tokens, ignore_eos=True)
    engine.generate([step.append], params)
    rates: dict[str, list[float]] = {"off": [], "auto": []}
    for number in range(rounds):
        for speculation in ("off", "auto") if number % 2 else ("auto", "off"):
            scheduler.drafter = drafter if speculation == "auto" else None
            [output] = engine.generate([step.append], params)
            stats = output.samples[0].stats
            rates[speculation].append(stats.decode_tokens_per_s)
            seconds[speculation].append((stats.num_generated_tokens - 1) / stats.decode_tokens_per_s)
            if speculation == "auto":
                guessed = f"{stats.num_accepted_tokens} of {stats.num_drafted_tokens} drafted"
    scheduler.drafter = drafter
    off, auto = statistics.median(rates["off"]), statistics.median(rates["auto"])
    print(f"  {step.chat:14} {off:6.1f} {auto:6.1f}  {auto / off:.2f}x  {guessed}")


if __name__ == "__main__":
    main()
