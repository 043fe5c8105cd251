"""Replay a workload token for token and measure each step."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from paged_chat.engine.config import DEFAULT_MODEL
from paged_chat.engine.number_range import NumberRange

from ..bench.bench_result import BenchResult, Metric, Round, metrics, num_equal_steps
from ..bench.replay import peak_rss_mib, replay
from ..bench.workload import load_workload
from ..counted import counted
from .engine_options import (
    DeviceOption,
    DtypeOption,
    KernelsOption,
    ModelOption,
    NumBlocksOption,
    WeightsOption,
    config_from,
    open_engine,
)
from .help_option import HELP_OPTIONS
from .number_option import number_option
from .path_option import named_path

if TYPE_CHECKING:
    from rich.table import Table

app = typer.Typer(add_completion=False, rich_markup_mode=None)

# Over this share of a core taken by other programs, figures of two runs can't be compared.
MOST_OTHERS_CORES = 0.1
ROUNDS = NumberRange(1, 1000)


@app.command(context_settings=HELP_OPTIONS)
def bench(
    workload_file: Annotated[
        Path | None,
        typer.Argument(metavar="WORKLOAD.json", parser=named_path, help="The steps to replay.", show_default=False),
    ] = None,
    json_file: Annotated[
        Path | None,
        typer.Option("--json", metavar="FILE", parser=named_path, help="Write every step's figures and tokens there."),
    ] = None,
    compare: Annotated[
        tuple[str, str] | None,
        typer.Option(
            "--compare",
            metavar="FILE FILE",
            help="Replay nothing: show two result files side by side, and how many times better the second is.",
            show_default=False,
        ),
    ] = None,
    rounds: Annotated[
        int,
        number_option(ROUNDS, metavar="COUNT", help="Replay so often, each in a fresh pool"),
    ] = 1,
    model: ModelOption = DEFAULT_MODEL,
    no_prefix_cache: Annotated[bool, typer.Option("--no-prefix-cache", help="Compute every prompt anew.")] = False,
    no_speculation: Annotated[bool, typer.Option("--no-speculation", help="Guess no tokens ahead.")] = False,
    device: DeviceOption = "auto",
    dtype: DtypeOption = "auto",
    weights: WeightsOption = "auto",
    kernels: KernelsOption = "auto",
    num_blocks: NumBlocksOption = None,
) -> None:
    """Replay a workload token for token and measure each step."""
    if compare is not None:
        if workload_file is not None or json_file is not None:
            raise typer.BadParameter("--compare takes two result files and replays nothing: leave the rest out")
        if "" in compare:  # which would be the folder that one is in
            raise typer.BadParameter("--compare must name two files, not ''")
        compare_files(Path(compare[0]), Path(compare[1]))
        return
    if workload_file is None:
        raise typer.BadParameter("name a WORKLOAD.json to replay, or two results with --compare")
    workload = load_workload(workload_file)
    if json_file is not None:
        _check_writable(json_file)
    config = config_from(
        model,
        device,
        dtype,
        weights,
        kernels,
        num_blocks,
        prefix_caching=not no_prefix_cache,
        speculation="off" if no_speculation else "auto",
    )
    finished: list[Round] = []
    for number in range(1, rounds + 1):
        if rounds > 1:
            print(f"Round {number} of {rounds}", file=sys.stderr)
        with open_engine(config) as engine:
            finished.append(Round.of(replay(engine, workload), engine.load_s))
            model_name = engine.model_name
    result = BenchResult.of(finished, workload=workload.name, model=model_name, peak_rss_mib=peak_rss_mib())
    show(result)  # first: a full disk takes the file, not what was measured
    if json_file is not None:
        result.write(json_file)


def _check_writable(file: Path) -> None:
    """Before anything is measured, for it may take long."""
    if os.path.isdir(file):
        raise typer.BadParameter(f"--json must name a file, and {file} is a folder")
    if not os.path.isdir(file.absolute().parent):
        raise typer.BadParameter(f"--json names a file in {file.parent}, and there is no such folder")


def compare_files(before: Path, after: Path) -> None:
    """Two results side by side, each under its file's name."""
    names = (before.stem, after.stem)
    if names[0] == names[1]:
        names = (str(before), str(after))
    show_comparison(BenchResult.read(before), BenchResult.read(after), names)


def show(result: BenchResult) -> None:
    """Tables for people: the steps, and what sums them up."""
    from rich.console import Console

    console = Console()
    of_rounds = f", medians of {len(result.rounds)} rounds" if len(result.rounds) > 1 else ""
    console.print(_steps_table(result, f"{result.workload} on {result.model}{of_rounds}"))
    summary = _summary_table("summary", "")
    for metric in metrics(result):
        if metric.value is not None:
            summary.add_row(metric.name, _figure(metric), metric.unit)
    console.print(summary)
    if result.others_cores is not None and result.others_cores > MOST_OTHERS_CORES:
        print(
            f"Other programs used {result.others_cores:.2f} cores meanwhile: measure again on a quiet machine.",
            file=sys.stderr,
        )


def _steps_table(result: BenchResult, title: str) -> Table:
    """A row for each step; what no step has is left out, so that the rest fits a terminal of 80 columns."""
    from rich import box
    from rich.table import Table

    columns = {
        "step": [str(i + 1) for i in range(len(result.steps))],
        "chat": [step.chat for step in result.steps],
        "replies": [f"{step.n} x {len(step.output_ids[0])}" for step in result.steps],
        "prompt": [str(step.prompt_tokens) for step in result.steps],
        "cached": [str(step.cached_tokens) for step in result.steps],
        "first token ms": [f"{step.ttft_ms:.1f}" for step in result.steps],
        "tokens/s": [f"{step.decode_tokens_per_s:.1f}" for step in result.steps],
        "total ms": [f"{step.total_ms:.1f}" for step in result.steps],
        "guessed": [
            f"{step.accepted_tokens} of {step.drafted_tokens}" if step.drafted_tokens else "" for step in result.steps
        ],
        "blocks": [
            "" if step.num_blocks is None else f"{step.num_blocks} instead of {step.num_blocks_alone}"
            for step in result.steps
        ],
    }
    shown = {name: cells for name, cells in columns.items() if any(cells)}
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=0, collapse_padding=True)
    for name in shown:
        table.add_column(name, justify="left" if name in ("step", "chat", "replies") else "right", overflow="fold")
    for row in zip(*shown.values(), strict=True):
        table.add_row(*row)
    return table


def show_comparison(first: BenchResult, second: BenchResult, names: tuple[str, str]) -> None:
    """Two results, metric by metric."""
    from rich.console import Console

    num_equal = num_equal_steps(first, second)
    table = _summary_table(first.workload, *names, "times better")
    for one, other in zip(metrics(first), metrics(second), strict=True):
        if one.value is None and other.value is None:
            continue
        ratio = other.times_better_than(one)
        table.add_row(one.name, _figure(one), _figure(other), "-" if ratio is None else f"{ratio:.2f}", one.unit)
    console = Console()
    console.print(table)
    console.print(f"The replies are the same in {num_equal} of {counted(len(first.steps), 'step')}.")
    for name, result in zip(names, (first, second), strict=True):
        if result.others_cores is not None and result.others_cores > MOST_OTHERS_CORES:
            print(f"Other programs used {result.others_cores:.2f} cores while {name} ran.", file=sys.stderr)


def _summary_table(title: str, *columns: str) -> Table:
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    table.add_column("metric")
    for column in columns:
        table.add_column(column, justify="right")
    table.add_column("unit")
    return table


def _figure(metric: Metric) -> str:
    if metric.value is None:
        return "-"
    return f"{metric.value:.1f}" if metric.value >= 10 else f"{metric.value:.2f}"
