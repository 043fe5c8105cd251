"""Replays a workload on an engine and measures each step."""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from paged_chat.engine.errors import InvalidParameter, PagedChatError
from paged_chat.engine.request import SamplingParams

from ..answer import Answer, StepEngine, run_request
from ..counted import counted
from .workload import Step, Workload

WARM_UP_TOKENS = 64
WARM_UP_FIRST_ID = 1000
WARM_UP_REPLY_TOKENS = 4


class WorkloadTooLong(PagedChatError):
    """A step that doesn't fit the engine's window."""


class BenchEngine(StepEngine, Protocol):
    @property
    def max_model_len(self) -> int: ...
    def warm_up(self) -> None: ...


@dataclass(frozen=True, slots=True)
class StepResult:
    """What one step of a workload took."""

    step: Step
    answer: Answer


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """What all steps took, and how many cores other programs used meanwhile (None where the system doesn't tell)."""

    steps: tuple[StepResult, ...]
    others_cores: float | None


def replay(
    engine: BenchEngine, workload: Workload, on_step: Callable[[StepResult], None] = lambda _: None
) -> ReplayResult:
    """Warms up, then runs the steps in order, greedy or seeded as they say, end tokens ignored.

    Raises WorkloadTooLong before the first step where one doesn't fit the window, and InvalidParameter, with the step,
    for what the model has not.
    """
    _check_window(engine, workload)
    with _named(workload.name):
        _warm_up(engine, workload)
    histories: dict[str, list[list[int]]] = {}
    results = []
    start_s, busy_s, own_s = time.perf_counter(), _machine_busy_s(), time.process_time()
    for i, step in enumerate(workload.steps):
        if step.prompt_from is not None:
            histories[step.chat] = histories[step.prompt_from.chat][: step.prompt_from.upto_step + 1]
        history = histories.setdefault(step.chat, [[]])
        prompt = [*history[-1], *step.append]
        with _named(f"step {i + 1} of {workload.name}"):
            answer = run_request(engine, prompt, _params(step))
        lengths = [len(reply.token_ids) for reply in answer.replies]
        assert lengths == [step.reply_tokens] * step.n, f"replies of {lengths} tokens instead of {step.reply_tokens}"
        history.append([*prompt, *answer.replies[0].token_ids, *step.append_end])
        results.append(StepResult(step, answer))
        on_step(results[-1])
    wall_s, own_s = time.perf_counter() - start_s, time.process_time() - own_s
    others_cores = None
    if busy_s is not None and (busy_end_s := _machine_busy_s()) is not None:
        others_cores = max(0.0, busy_end_s - busy_s - own_s) / wall_s
    return ReplayResult(tuple(results), others_cores)


@contextmanager
def _named(what: str) -> Iterator[None]:
    """Says which part of the workload the model can't take; only the model knows, such as which token ids there are."""
    try:
        yield
    except InvalidParameter as error:
        raise InvalidParameter(
            f"{what} doesn't suit this model: {error}; give the model that it was made for"
        ) from error


def _params(step: Step) -> SamplingParams:
    return SamplingParams(
        temperature=step.temperature, max_tokens=step.reply_tokens, n=step.n, seed=step.seed, ignore_eos=True
    )


def _check_window(engine: BenchEngine, workload: Workload) -> None:
    for i, (step, length) in enumerate(zip(workload.steps, workload.prompt_lengths(), strict=True)):
        if length + step.reply_tokens > engine.max_model_len:
            raise WorkloadTooLong(
                f"step {i + 1} of {workload.name} has {counted(length, 'prompt token')} and a reply of "
                f"{step.reply_tokens}, but the window holds {engine.max_model_len}; take a model with a longer window"
            )


def _warm_up(engine: BenchEngine, workload: Workload) -> None:
    """So that no step pays for what is made at first use: what long prompts need, and one short request.

    Its ids are in the model's vocabulary.
    """
    engine.warm_up()
    first_id = max(0, min(WARM_UP_FIRST_ID, workload.largest_token_id + 1 - WARM_UP_TOKENS))
    num_tokens = min(WARM_UP_TOKENS, engine.max_model_len - WARM_UP_REPLY_TOKENS)
    params = SamplingParams(max_tokens=WARM_UP_REPLY_TOKENS, ignore_eos=True)
    run_request(engine, list(range(first_id, first_id + num_tokens)), params)


def peak_rss_mib() -> float | None:
    """The most memory that this process has held at once; None on Windows."""
    if sys.platform == "win32":
        return None
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)  # bytes there, KiB elsewhere


def _machine_busy_s() -> float | None:
    """CPU seconds that all programs have used since the start of the machine; None where /proc isn't there."""
    try:
        ticks = [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
    except OSError:
        return None
    idle, waiting = ticks[3], ticks[4]
    return (sum(ticks) - idle - waiting) / os.sysconf("SC_CLK_TCK")
