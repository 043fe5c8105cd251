"""Ask a model: each prompt is a chat of its own, replies are printed as they come."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Annotated, TextIO

import typer

from paged_chat.engine.config import DEFAULT_MAX_NUM_SEQS, DEFAULT_MODEL, EngineConfig
from paged_chat.engine.request import SamplingParams

from ..engine_mode import EngineMode
from .asker import EXIT_TERMINATED, AskedEngine, Asker
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
from .help_option import HELP_OPTIONS
from .sampling_options import (
    BeamWidthOption,
    CountOption,
    EarlyStoppingChoice,
    EarlyStoppingOption,
    FrequencyPenaltyOption,
    LengthPenaltyOption,
    LogprobsOption,
    MaxTokensOption,
    MinPOption,
    PresencePenaltyOption,
    RepetitionPenaltyOption,
    SeedOption,
    StopOption,
    TemperatureOption,
    TopKOption,
    TopPOption,
)
from .shared_engine import EngineOption, find_server, open_shared

app = typer.Typer(add_completion=False, rich_markup_mode=None)

FROM_STDIN = "-"


@app.command(context_settings=HELP_OPTIONS)
def ask(
    context: typer.Context,
    prompts: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PROMPT",
            help="What to ask; - reads one prompt from standard input. Without any, each line typed is one.",
            show_default=False,
        ),
    ] = None,
    system: Annotated[str | None, typer.Option("--system", "-s", metavar="TEXT", help="System prompt.")] = None,
    model: ModelOption = DEFAULT_MODEL,
    n: CountOption = 1,
    seed: SeedOption = None,
    temperature: TemperatureOption = 0.0,
    top_p: TopPOption = 1.0,
    top_k: TopKOption = 0,
    min_p: MinPOption = 0.0,
    repetition_penalty: RepetitionPenaltyOption = 1.0,
    presence_penalty: PresencePenaltyOption = 0.0,
    frequency_penalty: FrequencyPenaltyOption = 0.0,
    beam_width: BeamWidthOption = 1,
    length_penalty: LengthPenaltyOption = 1.0,
    early_stopping: EarlyStoppingOption = EarlyStoppingChoice.NO,
    max_tokens: MaxTokensOption = 512,
    stop: StopOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON for each prompt.")] = False,
    logprobs: LogprobsOption = None,
    device: DeviceOption = "auto",
    dtype: DtypeOption = "auto",
    weights: WeightsOption = "auto",
    kernels: KernelsOption = "auto",
    num_blocks: NumBlocksOption = None,
    engine: EngineOption = EngineMode.OWN,
) -> None:
    """Ask a model: each prompt is a chat of its own, replies are printed as they come."""
    params = from_options(
        lambda: SamplingParams(
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            min_p=min_p,
            repetition_penalty=repetition_penalty,
            presence_penalty=presence_penalty,
            frequency_penalty=frequency_penalty,
            beam_width=beam_width,
            length_penalty=length_penalty,
            early_stopping=early_stopping.value_for_params,
            max_tokens=max_tokens,
            n=n,
            seed=seed,
            stop=tuple(stop or ()),
            logprobs=logprobs,
        )
    )
    config = from_options(
        lambda: EngineConfig(
            model=model,
            device=device,
            dtype=dtype,
            weights=weights,
            kernels=kernels,
            num_blocks=num_blocks,
            max_num_seqs=max(DEFAULT_MAX_NUM_SEQS, n),  # replies to one prompt run together
        )
    )
    if logprobs is not None and not as_json:
        raise typer.BadParameter("--logprobs needs --json: only there is a place for them")
    given = _given_prompts(prompts or [])
    source = context.get_parameter_source("model")
    server = find_server(engine, config, is_model_given=source is not None and source.name != "DEFAULT")
    opened: AbstractContextManager[AskedEngine] = open_engine(config) if server is None else open_shared(server)
    with opened as asked:
        asker = Asker(asked, params, system, as_json=as_json)
        if given:
            _ask_given(asker, given)
        else:
            _ask_typed(asker)


def _ask_given(asker: Asker, prompts: Sequence[str]) -> None:
    for i, prompt in enumerate(prompts):
        if not asker.ask(prompt, title=prompt if len(prompts) > 1 else None, is_first=i == 0):
            raise typer.Exit(asker.exit_code)


def _ask_typed(asker: Asker) -> None:
    for prompt in typed_lines(sys.stdin):
        # Ctrl-C ends a reply, not the talk: the next prompt is asked for.
        if not asker.ask(prompt) and (asker.exit_code == EXIT_TERMINATED or not sys.stdin.isatty()):
            raise typer.Exit(asker.exit_code)


def _given_prompts(prompts: Sequence[str]) -> list[str]:
    """The prompts of the command line, with standard input in the place of "-"."""
    if prompts.count(FROM_STDIN) > 1:
        raise typer.BadParameter("PROMPT - reads all of standard input, so it can be given only once")
    given = [sys.stdin.read() if prompt == FROM_STDIN else prompt for prompt in prompts]
    if not all(prompt.strip() for prompt in given):
        raise typer.BadParameter("PROMPT must not be empty")
    return given


def typed_lines(source: TextIO) -> Iterator[str]:
    """Lines that hold something; asked for with a mark where a person types them."""
    if not source.isatty():
        yield from (line.rstrip("\n") for line in source if line.strip())
        return
    import readline  # noqa: F401  # gives input() its line editing and history

    while True:
        try:
            line = input("> ")
        except EOFError:
            print()
            return
        if line.strip():
            yield line
