"""The workloads that `bench` replays: of each prompt exactly the part that is new is computed."""

import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from paged_chat.engine import Engine, SamplingParams
from replies import ask

WORKLOADS = Path(__file__).parents[1] / "workloads"


def replay(
    engine: Engine,
    name: str,
    *,
    to_id: Callable[[int], int] = lambda token_id: token_id,
    reply_tokens: int | None = None,
) -> Iterator[tuple[list[int], int, tuple[int, ...]]]:
    """Each step's prompt, how much of it was cached, and its reply; replies may be cut short to save time."""
    steps: list[dict[str, Any]] = json.loads((WORKLOADS / f"{name}.json").read_text())["steps"]
    histories: dict[str, list[list[int]]] = {}  # by chat, after each of its steps
    for step in steps:
        if "prompt_from" in step:
            origin = step["prompt_from"]
            histories[step["chat"]] = histories[origin["chat"]][: origin["upto_step"] + 1]
        history = histories.setdefault(step["chat"], [[]])
        prompt = [*history[-1], *map(to_id, step["append"])]
        params = SamplingParams(temperature=0.0, max_tokens=reply_tokens or step["reply_tokens"], ignore_eos=True)
        output = ask(engine, prompt, params)
        [sample] = output.samples
        history.append([*prompt, *sample.token_ids, *map(to_id, step["append_end"])])
        yield prompt, output.num_cached_tokens, sample.token_ids


def common_length(first: list[int], second: list[int]) -> int:
    return next(
        (i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), min(len(first), len(second))
    )


def test_chat8_on_the_default_model_computes_only_what_is_new(make_engine, default_model):
    engine = make_engine(model=default_model, num_blocks=256, check_integrity=False)
    steps = list(replay(engine, "chat8", reply_tokens=12))
    assert len(steps) == 8
    assert steps[0][1] == 0
    for (before, _, reply), (prompt, num_cached, _) in itertools.pairwise(steps):
        assert prompt[: len(before) + 12] == [*before, *reply]
        # The whole history but the last token of the reply, which was sampled and never read.
        assert num_cached == len(before) + 12 - 1


@pytest.mark.parametrize("name", ["chat8", "branch", "interleaved"])
def test_each_prompt_hits_its_longest_beginning_that_was_ever_read(make_engine, name):
    engine = make_engine(num_blocks=512)
    known: list[list[int]] = []
    hits = 0
    for prompt, num_cached, reply in replay(engine, name, to_id=lambda token_id: token_id % 317 + 3):
        assert num_cached == max((common_length(prompt[:-1], read) for read in known), default=0)
        known.append([*prompt, *reply[:-1]])
        hits += num_cached
    snapshot = engine.snapshot()
    assert (snapshot.hits, snapshot.evictions) == (hits, 0)
    assert snapshot.misses == sum(len(read) for read in known) - len(known) * 47 - hits
