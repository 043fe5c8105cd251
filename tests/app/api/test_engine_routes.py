"""The engine is shared with programs of the same person alone."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import TypeAdapter
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from engine_server import TOKEN
from paged_chat.app import cli
from paged_chat.app.api.binding import names_of
from paged_chat.app.api.engine_routes import EngineRoutes
from paged_chat.app.api.guard import Guard
from paged_chat.app.api.server_record import ENGINE_PATH, SOCKET_PATH
from paged_chat.app.api.wire import PROTOCOL, Ask, Ended, read_news, write
from paged_chat.app.engine_query import query_kinds
from paged_chat.tui import command as tui_app

OWN = {"Host": "127.0.0.1:7861", "Authorization": f"Bearer {TOKEN}"}


@pytest.fixture
def client_of(server):
    def open_client(peer="127.0.0.1", host="127.0.0.1"):
        app = Starlette(
            routes=EngineRoutes(server.host, TOKEN).routes, middleware=[Middleware(Guard, names=names_of(host))]
        )
        return TestClient(app, "http://127.0.0.1:7861", client=(peer, 50000))

    return open_client


def may_use(client, headers):
    """Whether both ways in are open; they always agree."""
    is_told = client.get(ENGINE_PATH, headers=headers).status_code == 200
    try:
        with client.websocket_connect(SOCKET_PATH, headers=headers):
            is_connected = True
    except WebSocketDisconnect:
        is_connected = False
    assert is_told == is_connected
    return is_told


def test_who_has_the_token_may_use_it(client_of):
    client = client_of()
    assert may_use(client, OWN)
    about = client.get(ENGINE_PATH, headers=OWN).json()
    assert about["protocol"] == PROTOCOL
    assert about["model"] == "fake-1b"


@pytest.mark.parametrize(
    "authorization",
    [None, "", "Bearer ", "Bearer the-tokem", "Bearer the-token2", "Basic the-token", "the-token", "Bearer ü"],
)
def test_without_the_very_token_nothing_is_told(client_of, authorization):
    headers = {"Host": "127.0.0.1:7861"}
    if authorization is not None:
        headers["Authorization"] = authorization.encode()
    assert not may_use(client_of(), headers)


def test_a_name_that_was_made_to_point_here_is_refused_whatever_it_knows(client_of):
    assert not may_use(client_of(), OWN | {"Host": "evil.example:7861"})


def test_another_page_cannot_open_the_socket(client_of):
    with (
        pytest.raises(WebSocketDisconnect),
        client_of().websocket_connect(SOCKET_PATH, headers=OWN | {"Origin": "https://evil.example"}),
    ):
        pass


def test_another_machine_is_refused_even_with_the_token(client_of):
    client = client_of(peer="192.168.1.9", host="0.0.0.0")
    assert not may_use(client, OWN)
    assert may_use(client_of(peer="::1", host="0.0.0.0"), OWN)


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (
            {"text": '{"kind": "pickle", "number": 1}'},
            "does not match any of the expected tags: 'submit', 'abort', 'ask'",
        ),
        ({"text": "[" * 100_000}, "the message is no JSON: maximum recursion depth exceeded"),
        ({"text": "9" * 5000}, "the message is no JSON: Exceeds the limit"),
        ({"text": ""}, "the message is no JSON: Expecting value"),
        ({"bytes": b"\xff\x00"}, "the message is no JSON: Expecting value"),
    ],
    ids=["unknown", "deep", "huge", "empty", "bytes"],
)
def test_what_is_no_order_ends_the_session_with_the_reason(client_of, message, words):
    with client_of().websocket_connect(SOCKET_PATH, headers=OWN) as socket:
        socket.send({"type": "websocket.receive", **message})
        while not isinstance(news := read_news(socket.receive_text()), Ended):
            pass
        assert words in news.reason


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"since": 0, "code": "import os"}, "read_pool takes no code"),
        ({"since": [1]}, "Input should be a valid integer"),
        ({}, "missing 1 required positional argument: 'since'"),
    ],
)
def test_arguments_that_a_query_has_not_are_refused_and_the_session_goes_on(client_of, arguments, words):
    with client_of().websocket_connect(SOCKET_PATH, headers=OWN) as socket:
        for number in (1, 2):
            socket.send_text(write(Ask(number=number, query="read_pool", arguments=arguments)))
            while (news := read_news(socket.receive_text())).kind == "loading":
                pass
            assert (news.kind, news.number) == ("refusal", number)
            assert words in news.words


def test_every_query_that_a_second_process_may_ask_is_known_here():
    # The page always has an engine of its own, so its queries need no way out of the process.
    asked = {
        name
        for package in (cli.__file__, tui_app.__file__)
        for path in Path(package).parent.rglob("*.py")
        if "web" not in path.relative_to(Path(package).parent).parts
        for name in re.findall(r"^@(?:engine|text)_query\ndef (\w+)", path.read_text(), re.MULTILINE)
    }
    code = """
from paged_chat.app.api import engine_session
from paged_chat.app.engine_query import query_kinds
print(*query_kinds())
"""
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert {"read_pool", "read_block", "prompt_cost", "encode_chat"} <= asked
    assert asked <= set(done.stdout.split())


def test_every_query_goes_through_json():
    for kind in query_kinds().values():
        for type_ in (*kind.parameters.values(), kind.result):
            assert TypeAdapter(type_).json_schema(), f"{kind.name} has a value that JSON can't hold"
