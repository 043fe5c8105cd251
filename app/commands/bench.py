"""Replay a workload token for token and measure each step."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from paged_chat.engine.config import DEFAULT_MODEL, EngineConfig

from ..replay import ReplayResult, StepResult, peak_rss_mib, replay
from ..workload import Workload, load_workload
from .engine_options import (
    DeviceOption,
    DtypeOption,
    KernelsOption,
    ModelOption,
    NumBlocksOption,
    WeightsOption,
    from_options,
    open_engine,
)

app = typer.Typer(add_completion=False, rich_markup_mode=None)

# Over this share of a core taken by other programs, figures of two runs can't be compared.
MOST_OTHERS_CORES = 0.1


@app.command(context_settings={"help_option_names": ["-h", "--help"]})
def bench(
    workload_file: Annotated[
        Path, typer.Argument(metavar="WORKLOAD.json", help="The steps to replay.", show_default=False)
    ],
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write every step's figures and tokens there.")
    ] = None,
    model: ModelOption = DEFAULT_MODEL,
    no_prefix_cache: Annotated[bool, typer.Option("--no-prefix-cache", help="Compute every prompt anew.")] = False,
    device: DeviceOption = "auto",
    dtype: DtypeOption = "auto",
    weights: WeightsOption = "auto",
    kernels: KernelsOption = "auto",
    num_blocks: NumBlocksOption = None,
) -> None:
    """Replay a workload token for token and measure each step."""
    workload = load_workload(workload_file)
    if json_file is not None and not json_file.absolute().parent.is_dir():
        raise typer.BadParameter(f"--json names a file in {json_file.parent}, and there is no such folder")
    config = from_options(
        lambda: EngineConfig(
            model=model,
            device=device,
            dtype=dtype,
            weights=weights,
            kernels=kernels,
            num_blocks=num_blocks,
            prefix_caching=not no_prefix_cache,
        )
    )
    with open_engine(config) as engine:
        result = replay(engine, workload)
        figures = as_dict(workload, result, model=engine.model_name, load_s=engine.load_s)
    if json_file is not None:
        # Whole or not at all: a comparison keeps the files that are there and goes on with the rest.
        partial = json_file.with_name(f".{json_file.name}.{os.getpid()}")
        partial.write_text(json.dumps(figures) + "\n")
        partial.replace(json_file)
    show(workload, result, figures)


def as_dict(workload: Workload, result: ReplayResult, *, model: str, load_s: float) -> dict[str, object]:
    """The result file: times in ms, rates in tokens a second, memory in MiB."""
    return {
        "peer": "project",
        "workload": workload.name,
        "model": model,
        "load_s": load_s,
        "peak_rss_mib": peak_rss_mib(),
        "others_cores": result.others_cores,
        "steps": [_step_as_dict(step) for step in result.steps],
    }


def _step_as_dict(result: StepResult) -> dict[str, object]:
    answer = result.answer
    output_ids = [reply.token_ids for reply in answer.replies]
    return {
        "chat": result.step.chat,
        "n": result.step.n,
        "prompt_tokens": answer.num_prompt_tokens,
        "cached_tokens": answer.num_cached_tokens,
        "ttft_ms": answer.ttft_ms,
        "decode_tokens_per_s": answer.decode_tokens_per_s or 0.0,
        "total_ms": answer.total_ms,
        "output_ids": output_ids if result.step.n > 1 else output_ids[0],
    }


def show(workload: Workload, result: ReplayResult, figures: dict[str, object]) -> None:
    """A table of the steps for people, and under it what concerns the whole run."""
    from rich.console import Console
    from rich.table import Table

    console = Console()
    table = Table(title=f"{workload.name} on {figures['model']}", title_justify="left")
    for column in ("step", "chat", "replies"):
        table.add_column(column)
    for column in ("prompt", "cached", "first token ms", "tokens/s", "total ms"):
        table.add_column(column, justify="right")
    for i, step in enumerate(result.steps):
        answer = step.answer
        table.add_row(
            str(i + 1),
            step.step.chat,
            f"{step.step.n} x {step.step.reply_tokens}",
            str(answer.num_prompt_tokens),
            str(answer.num_cached_tokens),
            f"{answer.ttft_ms or 0.0:.1f}",
            f"{answer.decode_tokens_per_s or 0.0:.1f}",
            f"{answer.total_ms:.1f}",
        )
    console.print(table)
    rss = figures["peak_rss_mib"]
    memory = f", at most {rss:.0f} MiB of memory" if isinstance(rss, float) else ""
    console.print(f"Loaded in {figures['load_s']:.2f} s{memory}.")
    if result.others_cores is not None and result.others_cores > MOST_OTHERS_CORES:
        print(
            f"Other programs used {result.others_cores:.2f} cores meanwhile: measure again on a quiet machine.",
            file=sys.stderr,
        )
