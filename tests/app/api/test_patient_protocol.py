"""Connections that hold a server up (Slowloris) are closed; those of slow honest programs aren't."""

import socket
from collections.abc import Iterator

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from paged_chat.app.api import patient_protocol
from paged_chat.app.api.server import ApiServer
from patience import PATIENCE_S

REQUEST = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


async def answer(_: Request) -> PlainTextResponse:
    return PlainTextResponse("good day")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServer]:
    monkeypatch.setattr(patient_protocol.PatientProtocol, "head_s", 0.1)
    monkeypatch.setattr(patient_protocol.PatientProtocol, "max_connections", 3)
    server = ApiServer([Route("/", answer)], "127.0.0.1", 0)
    yield server
    server.close()


def connected(server: ApiServer) -> socket.socket:
    host, port = server.url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=PATIENCE_S)


@pytest.mark.parametrize("begun", [b"", b"G", REQUEST[:-2]])
def test_a_head_that_does_not_come_is_not_waited_for(server, begun):
    with connected(server) as slow:
        slow.sendall(begun)
        assert slow.recv(1) == b"", "the server closes it"


def test_nor_is_the_head_of_a_second_request(server):
    with connected(server) as slow:
        slow.sendall(REQUEST)
        answered = b""
        while not answered.endswith(b"good day"):
            answered += slow.recv(1000)
        slow.sendall(b"G")
        assert slow.recv(1) == b""


def test_with_too_many_connections_the_newest_is_closed(server, monkeypatch):
    monkeypatch.setattr(patient_protocol.PatientProtocol, "head_s", PATIENCE_S)
    held = [connected(server) for _ in range(3)]
    with connected(server) as one_more:
        assert one_more.recv(1) == b""
    for connection in held:
        connection.sendall(REQUEST)
        assert connection.recv(8) == b"HTTP/1.1"
        connection.close()
