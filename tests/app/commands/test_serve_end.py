"""How `paged-chat serve` ends in the middle of answers, as a process of its own: whoever is being answered is told."""

import http.client
import json
import signal
import subprocess
import sys
from contextlib import closing

import pytest

import told_command
from free_port import free_port
from paged_chat.app.api.server_record import records
from paged_chat.engine.config import DEFAULT_MODEL
from patience import PATIENCE_S

QUESTION = {"model": DEFAULT_MODEL, "messages": [{"role": "user", "content": "Tell me a story"}], "max_tokens": 2000}


def ask(port: int, **options: object) -> http.client.HTTPConnection:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    connection.request(
        "POST", "/v1/chat/completions", json.dumps(QUESTION | options), {"Content-Type": "application/json"}
    )
    return connection


@pytest.mark.parametrize(
    "signals",
    [(signal.SIGTERM, signal.SIGINT), (signal.SIGHUP,)],
    ids=["terminated, then Ctrl-C", "terminal closed"],
)
def test_who_is_being_answered_is_told_and_nothing_is_left(home, signals):
    port = free_port()
    command = [sys.executable, told_command.__file__, "serve", "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            while not process.stdout.readline().startswith("paged-chat serves "):
                assert process.poll() is None
            with closing(ask(port, stream=True)) as streaming, closing(ask(port)) as waiting:
                stream = streaming.getresponse()
                lines = [stream.readline() for _ in range(8)]
                assert lines[0].startswith(b"data: ")
                for number in signals:
                    process.send_signal(number)
                *_, last, _end = (b"".join(lines) + stream.read()).split(b"\n\n")  # it is whole, or this raises
                assert json.loads(last.removeprefix(b"data: "))["error"]["code"] == "engine_failed"
                answer = waiting.getresponse()
                told = json.loads(answer.read())["error"]["message"]
                assert (answer.status, told) == (500, "the engine was closed while it answered")
            assert process.wait(PATIENCE_S) == 0
            assert process.stderr.read() == ""
        finally:
            process.kill()
    assert records() == []
