"""Ask a model: each prompt is a chat of its own, replies are printed as they come."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from enum import StrEnum
from typing import Annotated, Protocol, TextIO

import typer

from paged_chat.engine import ChatMessage
from paged_chat.engine.config import DEFAULT_MAX_NUM_SEQS, DEFAULT_MODEL, EngineConfig
from paged_chat.engine.request import RANGES, EarlyStopping, SamplingParams

from ..answer import Answer, Reply, StepEngine, run_request
from ..cache_view.sharing import sharing_of_request
from ..counted import counted
from ..terminal_text import json_line, shown_on
from ..token_view.token_piece import legible
from ..transcript.miss_reason import why_missed
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
from .interrupt import StopFlag, stop_on_interrupt
from .number_option import number_option
from .reply_printer import ReplyPrinter
from .search_line import SearchLine
from .shared_engine import EngineChoice, EngineOption, find_server, open_shared

app = typer.Typer(add_completion=False, rich_markup_mode=None)

FROM_STDIN = "-"
EXIT_INTERRUPTED, EXIT_TERMINATED = 130, 143


class EarlyStoppingChoice(StrEnum):
    """How `--early-stopping` names the values of `SamplingParams.early_stopping`."""

    YES = "true"
    NO = "false"
    NEVER = "never"

    @property
    def value_for_params(self) -> EarlyStopping:
        return "never" if self is EarlyStoppingChoice.NEVER else self is EarlyStoppingChoice.YES


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
    n: Annotated[int, number_option(RANGES["n"], "-n", metavar="COUNT", help="Replies to each prompt")] = 1,
    seed: Annotated[int | None, number_option(RANGES["seed"], metavar="SEED", help="Makes sampling repeatable")] = None,
    temperature: Annotated[
        float,
        number_option(RANGES["temperature"], "--temperature", "-t", metavar="T", help="0 takes the most likely token"),
    ] = 0.0,
    top_p: Annotated[
        float, number_option(RANGES["top_p"], metavar="P", help="Smallest set of tokens that reach P together")
    ] = 1.0,
    top_k: Annotated[int, number_option(RANGES["top_k"], metavar="K", help="The K most likely tokens; 0 is all")] = 0,
    min_p: Annotated[
        float, number_option(RANGES["min_p"], metavar="P", help="Drop tokens under P times the most likely one")
    ] = 0.0,
    repetition_penalty: Annotated[
        float,
        number_option(
            RANGES["repetition_penalty"], metavar="R", help="Over 1 makes tokens of prompt and reply less likely"
        ),
    ] = 1.0,
    presence_penalty: Annotated[
        float,
        number_option(RANGES["presence_penalty"], metavar="A", help="Taken off tokens that the reply has already"),
    ] = 0.0,
    frequency_penalty: Annotated[
        float,
        number_option(
            RANGES["frequency_penalty"], metavar="A", help="Taken off for each time that the reply has a token"
        ),
    ] = 0.0,
    beam_width: Annotated[
        int,
        number_option(
            RANGES["beam_width"],
            metavar="COUNT",
            help="Over 1 searches for the likeliest replies, with so many beams",
        ),
    ] = 1,
    length_penalty: Annotated[
        float,
        number_option(
            RANGES["length_penalty"],
            metavar="X",
            help="Of beam search: over 0 favours long replies, under 0 short ones",
        ),
    ] = 1.0,
    early_stopping: Annotated[
        EarlyStoppingChoice,
        typer.Option(help="Of beam search: end with COUNT replies, when it looks settled, or when it surely is."),
    ] = EarlyStoppingChoice.NO,
    max_tokens: Annotated[
        int, number_option(RANGES["max_tokens"], metavar="COUNT", help="Longest reply, in tokens")
    ] = 512,
    stop: Annotated[
        list[str] | None, typer.Option(metavar="TEXT", help="Ends the reply before TEXT; may be repeated.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON for each prompt.")] = False,
    logprobs: Annotated[
        int | None,
        number_option(
            RANGES["logprobs"],
            metavar="K",
            help="With --json: how likely each token was, and its K likeliest alternatives",
        ),
    ] = None,
    device: DeviceOption = "auto",
    dtype: DtypeOption = "auto",
    weights: WeightsOption = "auto",
    kernels: KernelsOption = "auto",
    num_blocks: NumBlocksOption = None,
    engine: EngineOption = EngineChoice.OWN,
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
            for i, prompt in enumerate(given):
                if not asker.ask(prompt, title=prompt if len(given) > 1 else None, is_first=i == 0):
                    raise typer.Exit(asker.exit_code)
        else:
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


class AskedEngine(StepEngine, Protocol):
    """An engine of our own, or one in another process."""

    @property
    def model_name(self) -> str: ...

    @property
    def load_s(self) -> float: ...

    def encode_chat(self, messages: Sequence[ChatMessage]) -> list[int]: ...
    def decode(self, token_ids: Sequence[int]) -> str: ...
    def token_bytes(self, token_id: int) -> bytes: ...


class Asker:
    """Puts prompts to one engine and prints what comes back."""

    def __init__(self, engine: AskedEngine, params: SamplingParams, system: str | None, *, as_json: bool) -> None:
        self._engine = engine
        self._params = params
        self._system = system
        self._as_json = as_json
        self.exit_code = EXIT_INTERRUPTED  # where a reply was cut short

    def ask(self, prompt: str, title: str | None = None, is_first: bool = True) -> bool:
        """Prints the replies to one prompt; False when Ctrl-C or SIGTERM cut them short (what had come is printed)."""
        messages = [ChatMessage("system", self._system)] if self._system is not None else []
        prompt_token_ids = self._engine.encode_chat([*messages, ChatMessage("user", prompt)])
        search_line = SearchLine()
        printer = None if self._as_json else ReplyPrinter(self._params.n, search_line)
        if printer is not None and title is not None:
            sys.stdout.write(("" if is_first else "\n") + shown_on(sys.stdout, f"> {title.strip()}\n"))
        with stop_on_interrupt() as stopped:
            answer = run_request(
                self._engine,
                prompt_token_ids,
                self._params,
                on_delta=printer.show if printer is not None else lambda _: None,
                should_stop=stopped,
                on_preview=search_line.show,
            )
        if printer is not None:
            printer.finish()
            self._show_figures(answer, stopped)
        else:
            print(json_line(self._as_dict(answer, prompt_token_ids), sys.stdout), flush=True)
        if stopped.must_end:
            self.exit_code = EXIT_TERMINATED
        return not stopped.is_set

    def _as_dict(self, answer: Answer, prompt_token_ids: Sequence[int]) -> dict[str, object]:
        prefix = answer.prefix
        miss = None if prefix is None else why_missed(prefix, prompt_token_ids, self._engine.decode)
        return {
            "model": self._engine.model_name,
            "samples": [
                {
                    "index": reply.index,
                    "text": reply.text,
                    "token_ids": reply.token_ids,
                    "finish_reason": reply.finish_reason,
                    **({} if reply.score is None else {"score": reply.score}),
                    **({} if self._params.logprobs is None else {"logprobs": self._logprobs_of(reply)}),
                }
                for reply in answer.replies
            ],
            "usage": {
                "prompt_tokens": answer.num_prompt_tokens,
                "cached_tokens": answer.num_cached_tokens,
                "completion_tokens": answer.num_completion_tokens,
            },
            "timing": {
                "load_s": self._engine.load_s,
                "ttft_ms": answer.ttft_ms,
                "decode_tokens_per_s": answer.decode_tokens_per_s,
            },
            "speculation": {
                "drafted_tokens": answer.num_drafted_tokens,
                "accepted_tokens": answer.num_accepted_tokens,
            },
            "miss": None if miss is None else miss.as_dict(),
        }

    def _logprobs_of(self, reply: Reply) -> list[dict[str, object]]:
        """One for each token, with its text; "top" holds [id, text, log probability], likeliest first."""
        text = {
            token_id: legible(self._engine.token_bytes(token_id))
            for one in reply.logprobs
            for token_id in [one.token_id, *(token_id for token_id, _ in one.top)]
        }
        return [
            {
                "token_id": one.token_id,
                "text": text[one.token_id],
                "logprob": one.logprob,
                "top": [[token_id, text[token_id], logprob] for token_id, logprob in one.top],
            }
            for one in reply.logprobs
        ]

    def _show_figures(self, answer: Answer, stopped: StopFlag) -> None:
        """One line under the reply, for people only."""
        if not sys.stderr.isatty():
            return
        figures = [f"{counted(answer.num_prompt_tokens, 'prompt token')}, {answer.num_cached_tokens:,} cached"]
        if answer.ttft_ms is not None:
            figures.append(f"first token after {answer.ttft_ms:.0f} ms")
        rate = f" at {answer.decode_tokens_per_s:.0f}/s" if answer.decode_tokens_per_s is not None else ""
        figures.append(f"{counted(answer.num_completion_tokens, 'token')}{rate}")
        if answer.num_accepted_tokens:
            figures.append(f"{answer.num_accepted_tokens} guessed ahead")
        if (sharing := sharing_of_request(answer.block_use, beam_width=self._params.beam_width)) is not None:
            figures.append(str(sharing))
        if stopped.is_set:
            figures.append("stopped")
        typer.secho(f"[{' · '.join(figures)}]", dim=True, err=True)
