"""What is expected of a prompt's first token beside what it takes: expected_ttft.py [--rounds N]

For each of five lengths, round after round: fresh prompts of that length, each planned before it is sent. The engine
has computed prompts of other lengths before (1.5 times longer and shorter), and is otherwise idle.
"""

import argparse
import os
import random
import statistics
import time

from paged_chat.engine import Engine, EngineConfig, SamplingParams

LENGTHS = (64, 200, 500, 1200, 3000)
WARM_LENGTHS = (43, 96, 133, 300, 333, 750, 800, 1800, 2000, 4500)
GREEDY = SamplingParams(max_tokens=4, ignore_eos=True)


def cpu_s_of_others(own_before: os.times_result, all_before: float) -> float:
    own = os.times()
    taken = own.user + own.system - own_before.user - own_before.system
    return busy_s() - all_before - taken


def busy_s() -> float:
    """Of all processors together, since the machine's start."""
    with open("/proc/stat") as stat:
        user, nice, system, _, _, irq, softirq, *_ = map(int, stat.readline().split()[1:])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    numbers = random.Random(1)

    def prompt(length: int) -> list[int]:
        return [numbers.randrange(1000, 40000) for _ in range(length)]

    with Engine(EngineConfig()) as engine:
        engine.warm_up()
        own, everyone, began = os.times(), busy_s(), time.perf_counter()
        for length in WARM_LENGTHS:
            engine.generate([prompt(length)], GREEDY)
        print(f"{'tokens':>8} {'expected':>10} {'± error':>10} {'measured':>10}  expected / measured")
        results: dict[int, list[tuple[float, float, float]]] = {length: [] for length in LENGTHS}
        for _ in range(rounds):
            for length in LENGTHS:
                expected = engine.expected_ttft(length, 0)
                [output] = engine.generate([prompt(length)], GREEDY)
                measured = output.samples[0].stats.ttft_ms / 1e3
                if expected is None:
                    print(f"{length:>8} nothing is said")
                else:
                    results[length].append((expected.seconds, expected.error_s, measured))
        for length, rows in results.items():
            for place, (seconds, error_s, measured) in enumerate(rows):
                print(
                    f"{length if not place else '':>8} {seconds * 1e3:>7.0f} ms {error_s * 1e3:>7.0f} ms "
                    f"{measured * 1e3:>7.0f} ms  {seconds / measured:.2f}"
                )
        ratios = [seconds / measured for rows in results.values() for seconds, _, measured in rows]
        print(f"expected / measured: median {statistics.median(ratios):.2f}, {min(ratios):.2f} to {max(ratios):.2f}")
        others = cpu_s_of_others(own, everyone)
        print(f"other programs took {others:.1f} s of a processor in {time.perf_counter() - began:.1f} s")


if __name__ == "__main__":
    main()
