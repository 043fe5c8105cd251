"""`paged-chat ask --engine`: the engine of a server that runs, used instead of a second one."""

import json
from collections.abc import Iterator
from contextlib import closing

import pytest

from engine_server import EngineServer, serve_engine
from paged_chat.app.answer import run_request
from paged_chat.app.api.remote_steps import RemoteSteps
from paged_chat.app.api.server_record import announced
from paged_chat.app.service.own_engine import open_own_engine
from paged_chat.engine import ChatMessage
from paged_chat.engine.config import EngineConfig
from paged_chat.engine.errors import StepFailed
from paged_chat.engine.request import SamplingParams

MODEL = ("--model", "fake-1b")


@pytest.fixture
def server(fake, home) -> Iterator[EngineServer]:
    """A `paged-chat serve` that can be found."""
    opened = serve_engine(fake.open)
    with announced(opened.record):
        yield opened
    fake.go()
    opened.close()


def ask_json(run_cli, *options):
    return json.loads(run_cli("ask", "--engine", "shared", "--json", *options, "Where is Lisbon?").out)


def test_a_running_server_answers_and_knows_what_it_has_read(run_cli, scripted, fake, server):
    fake.enqueue("On seven hills.")
    ended = run_cli("ask", "--engine", "shared", "Where is Lisbon?")
    assert (ended.code, ended.out, ended.err) == (0, "On seven hills.\n", "")
    fake.enqueue("On hills.", "By the sea.")
    answer = ask_json(run_cli, "-n", "2", *MODEL)
    assert answer["model"] == "fake-1b"
    assert [sample["text"] for sample in answer["samples"]] == ["On hills.", "By the sea."]
    assert answer["usage"]["cached_tokens"] == answer["usage"]["prompt_tokens"] - 1
    assert answer["timing"]["load_s"] == 0.0
    assert scripted.configs == [], "a model was loaded here"


def test_logprobs_and_the_cause_of_a_miss_come_over_the_wire(run_cli, fake, server):
    fake.enqueue("yes")
    answer = ask_json(run_cli, "--logprobs", "1")
    assert [one["text"] for one in answer["samples"][0]["logprobs"]][:3] == ["y", "e", "s"]
    assert answer["miss"]["cause"] == "first message"


def test_auto_takes_a_server_with_the_same_model_and_else_loads_one(run_cli, scripted, fake, server):
    fake.enqueue("from there")
    assert run_cli("ask", "--engine", "auto", *MODEL, "Where?").out == "from there\n"
    for options in (("--model", "other-3b"), (*MODEL, "--device", "cpu")):
        scripted.enqueue("from here")
        assert run_cli("ask", "--engine", "auto", *options, "Where?").out == "from here\n"
    assert [config.model for config in scripted.configs] == ["other-3b", "fake-1b"]


def test_a_shared_engine_that_is_not_there_is_an_error_that_says_what_to_do(run_cli, scripted):
    ended = run_cli("ask", "--engine", "shared", "Where?")
    assert (ended.code, ended.out) == (1, "")
    assert "no `paged-chat web` or `serve` of yours runs here: start one, or leave --engine out" in ended.err
    assert scripted.configs == []


def test_another_model_or_another_way_to_run_it_is_never_answered_by_the_one_that_runs(run_cli, server):
    ended = run_cli("ask", "--engine", "shared", "--model", "other-3b", "Where?")
    assert ended.code == 1
    assert f"paged-chat serve at {server.address} has fake-1b loaded, not other-3b" in ended.err
    ended = run_cli("ask", "--engine", "shared", "--weights", "int8", "Where?")
    assert ended.code == 2
    assert "takes an engine as it runs" in ended.err


@pytest.fixture
def steps(fake, server) -> Iterator[RemoteSteps]:
    """The server's engine, which says "one" and then waits."""
    fake.enqueue("one two three")
    fake.hold()
    fake.let(3)
    with closing(server.connect()) as remote:
        yield RemoteSteps(remote)


def run(steps, on_delta=lambda _: None, should_stop=lambda: False):
    prompt = steps.encode_chat([ChatMessage("user", "Count")])
    return run_request(steps, prompt, SamplingParams(max_tokens=64), on_delta, should_stop)


def test_a_reply_that_is_stopped_keeps_what_has_come(steps):
    told: list[str] = []
    answer = run(steps, lambda delta: told.append(delta.text), lambda: "".join(told) == "one")
    assert (answer.replies[0].text, answer.replies[0].finish_reason) == ("one", "abort")


def test_a_server_that_goes_in_mid_reply_is_an_error_that_says_so(steps, server):
    with pytest.raises(StepFailed, match=r"doesn't answer any more: .*; load a model here, or start the other"):
        run(steps, lambda delta: server.server.close() if delta.text == "o" else None)


@pytest.mark.default_model
def test_the_default_model_answers_as_an_engine_of_ones_own(run_cli, default_model, home):
    def answer(*options: str) -> list[int]:
        ended = run_cli("ask", "--json", "--max-tokens", "8", *options, "What is the capital of France?")
        return json.loads(ended.out)["samples"][0]["token_ids"]

    server = serve_engine(open_own_engine, EngineConfig(model=default_model))
    try:
        with announced(server.record):
            shared = answer("--engine", "shared")
    finally:
        server.close()
    assert shared == answer()
