"""`paged-chat serve` as a process of its own, with a tiny model."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from chat_desk import next_update, until
from free_port import free_port
from paged_chat.app.api.running_server import find_servers
from paged_chat.app.service.chat_service import ChatService
from paged_chat.app.store.store import Store
from paged_chat.engine import AsyncEngine, ChatMessage, Engine, SamplingParams
from paged_chat.engine.config import EngineConfig
from patience import PATIENCE_S
from tiny_tokenizer import with_tokenizer

SERVE = [sys.executable, "-P", "-c", "from paged_chat.app.cli import main; main()", "serve"]
PLAIN: dict[str, Any] = {"kernels": "reference", "weights": "dense", "dtype": "float32", "device": "cpu"}
OPTIONS = [word for name, value in PLAIN.items() for word in (f"--{name}", value)]
JSON = {"Content-Type": "application/json"}


def test_a_port_that_is_taken_is_an_error_before_anything_is_loaded(run_cli):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        ended = run_cli("serve", "--port", str(port))
    assert ended.code == 1
    said = f"Error: port {port} of 127.0.0.1 is taken by another program: choose another one with --port, such as "
    assert ended.err.startswith(said)


def test_an_address_for_others_needs_accounts(run_cli):
    ended = run_cli("serve", "--host", "0.0.0.0")
    assert ended.code == 1
    assert "0.0.0.0 can be reached by others" in ended.err
    assert "--auth" in ended.err


@pytest.mark.parametrize("command", ["serve", "web"])
def test_a_name_of_no_model_is_refused_before_anything_starts(run_cli, command):
    ended = run_cli(command, "--model", "smolm2")
    assert (ended.code, ended.out) == (1, "")
    assert "there is no model 'smolm2'" in ended.err


@pytest.mark.parametrize("command", ["serve", "web"])
@pytest.mark.parametrize("port", ["0", "65536", "x"])
def test_a_number_that_is_no_port_is_refused(run_cli, command, port):
    ended = run_cli(command, "--port", port)
    assert ended.code == 2
    assert f"'--port': must be a whole number from 1 to 65535, not '{port}'" in ended.err


def test_a_model_that_is_broken_ends_the_server_with_the_reason(tmp_path):
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF")
    command = [*SERVE, "--port", str(free_port()), "--model", str(broken)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 1
    assert f"Error: {broken}" in done.stderr
    assert "Traceback" not in done.stderr
    assert find_servers() == []


@dataclass
class Running:
    process: subprocess.Popen[str]
    address: str
    model: str


@pytest.fixture
def running(tiny_model: Callable[..., Path], tmp_path: Path) -> Iterator[Running]:
    port, model = free_port(), str(with_tokenizer(tiny_model(), tmp_path / "tiny"))
    command = [*SERVE, "--port", str(port), "--num-blocks", "128", "--model", model, *OPTIONS]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == (
            f"paged-chat serves {model} at http://127.0.0.1:{port}/v1 (Ctrl-C ends it)\n"
        )
        yield Running(process, f"127.0.0.1:{port}", model)
        process.send_signal(signal.SIGKILL)


def test_one_engine_for_programs_and_screens_whose_process_is_killed_in_mid_reply(running, tmp_path):
    question, params = "Tell me about the sea.", SamplingParams(temperature=0.8, seed=6, max_tokens=48)
    config = EngineConfig(model=running.model, num_blocks=128, **PLAIN)
    with Engine(config) as engine:
        prompt = engine.encode_chat([ChatMessage("user", question)])
        [expected] = engine.generate([prompt], params)

    # A program asks first.
    connection = http.client.HTTPConnection(running.address, timeout=PATIENCE_S)
    body = {"model": running.model, "messages": [{"role": "user", "content": question}], "temperature": 0.8, "seed": 6}
    connection.request("POST", "/v1/chat/completions", json.dumps(body | {"max_tokens": 48}), JSON)
    answer = json.loads(connection.getresponse().read())
    connection.close()
    assert answer["choices"][0]["message"]["content"] == expected.samples[0].text
    assert answer["usage"]["prompt_tokens"] == len(prompt)
    assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == 0

    # A screen then finds its prompt, and gets the very same ids.
    [server] = [found for found in find_servers() if found.address == running.address]
    assert (server.record.pid, server.model) == (running.process.pid, running.model)
    store = Store(tmp_path / "chats.db")
    service = ChatService(store, AsyncEngine, config=config, server=server)
    chat = service.create_chat(sampling=params)
    [draft] = service.send(chat.id, question).replies
    until(lambda: not service.running(chat.id))
    reply = service.message(chat.id, draft.id)
    assert reply.token_ids == expected.samples[0].token_ids
    assert reply.cost.num_cached_tokens == len(prompt) - 1
    assert service.engine_status.server == running.address

    # The other process is killed: the draft is kept, the screen knows why, and goes on with a model of its own.
    [cut] = service.retry(chat.id, draft.id, sampling=SamplingParams(max_tokens=900, ignore_eos=True)).replies
    with service.watch(chat.id) as watcher:
        while next_update(watcher).num_generated_tokens < 10:
            pass
        os.kill(running.process.pid, signal.SIGKILL)
        while not (update := next_update(watcher)).has_ended:
            pass
    assert (update.status, update.text != "") == ("failed", True)
    assert f"the engine at {running.address} doesn't answer any more" in update.error
    until(lambda: service.engine_status.phase == "failed")
    assert find_servers() == []
    kept = service.message(chat.id, cut.id).token_ids
    assert 10 <= len(kept) < 900
    service.switch_model(running.model)
    service.continue_reply(chat.id, cut.id)
    with service.watch(chat.id) as watcher:
        while next_update(watcher).num_generated_tokens < len(kept) + 5:
            pass
    service.stop(chat.id)
    until(lambda: not service.running(chat.id))
    assert service.message(chat.id, cut.id).token_ids[: len(kept)] == kept
    assert service.engine_status.server is None
    service.close()
    store.close()
