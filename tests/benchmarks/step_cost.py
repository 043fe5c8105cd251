"""What a step takes by its number of rows: one sequence's next tokens, each a row, as verifying a draft computes them.

    python tests/benchmarks/step_cost.py
    python tests/benchmarks/step_cost.py --contexts 100 4000 --rows 1 2 4 8 --weights int8

The numbers of rows take turns. `engine/speculation/step_cost.py` begins with such a curve and then measures its own.
"""

import argparse
import statistics
import time

import numpy as np

from paged_chat.engine import Engine, EngineConfig
from paged_chat.engine.batch import Batch


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--contexts", type=int, nargs="+", default=[100, 1000, 4000])
    parser.add_argument("--rows", type=int, nargs="+", default=list(range(1, 17)))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--weights", default="auto")
    options = parser.parse_args()
    with Engine(EngineConfig(model=options.model, weights=options.weights, num_blocks=1024)) as engine:
        print("| rows | " + " | ".join(f"context {context:,}, ms | / 1 row" for context in options.contexts) + " |")
        print("|---:|" + "---:|---:|" * len(options.contexts))
        columns = [curve(engine, context, options.rows, options.rounds) for context in options.contexts]
    for place, rows in enumerate(options.rows):
        cells = [f"{times[place]:.2f} | {times[place] / times[0]:.2f}" for times in columns]
        print(f"| {rows} | " + " | ".join(cells) + " |")


def curve(engine: Engine, context: int, row_counts: list[int], rounds: int) -> list[float]:
    """Milliseconds of a step for each number of rows: medians of all rounds."""
    runner = engine._open_core()._runner
    batches = [rows_after(context, rows) for rows in row_counts]
    times: list[list[float]] = [[] for _ in batches]
    for round_number in range(rounds + 1):
        for batch, spent in zip(batches, times, strict=True):
            started = time.perf_counter()
            runner.execute(batch)
            if round_number:  # the first one compiles
                spent.append((time.perf_counter() - started) * 1e3)
    return [statistics.median(spent) for spent in times]


def rows_after(context: int, num_rows: int) -> Batch:
    """The rows that follow `context` tokens of one sequence, every row's logits wanted."""
    positions = context + np.arange(num_rows)
    num_blocks = -(-(context + num_rows) // 16)
    table = 1 + np.random.default_rng(0).permutation(1023)[:num_blocks].astype(np.int32)
    return Batch(
        input_ids=1000 + np.arange(num_rows),
        positions=positions,
        slot_mapping=table[positions // 16].astype(np.int64) * 16 + positions % 16,
        block_tables=np.repeat(table[None], num_rows, axis=0),
        context_lens=(positions + 1).astype(np.int32),
        cu_seqlens_q=np.zeros(1, np.int32),
        logits_rows=np.arange(num_rows),
        num_decodes=num_rows,
        max_query_len=0,
    )


if __name__ == "__main__":
    main()
