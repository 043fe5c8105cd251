"""Other web sites can neither change nor read anything through a visitor's browser."""

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route, WebSocketRoute
from starlette.testclient import TestClient
from starlette.websockets import WebSocket, WebSocketDisconnect

from paged_chat.app.api.binding import names_of
from paged_chat.app.api.guard import Guard


async def answer(_: Request) -> PlainTextResponse:
    return PlainTextResponse("a secret")


async def greet(socket: WebSocket) -> None:
    await socket.accept()
    await socket.send_text("a secret")
    await socket.close()


def client_of(host: str, address: str = "http://127.0.0.1:7860") -> TestClient:
    routes = [Route("/", answer, methods=["GET", "POST"]), WebSocketRoute("/live", greet)]
    return TestClient(Starlette(routes=routes, middleware=[Middleware(Guard, names=names_of(host))]), address)


@pytest.mark.parametrize("name", ["127.0.0.1:7860", "localhost:7860", "[::1]:7860", "127.0.0.1"])
def test_a_page_of_this_machine_answers_to_this_machines_names(name):
    assert client_of("127.0.0.1").get("/", headers={"Host": name}).text == "a secret"


@pytest.mark.parametrize("name", ["evil.example", "evil.example:7860", "127.0.0.1.evil.example", "", "192.168.1.2"])
def test_a_name_that_was_made_to_point_here_is_refused(name):
    answer = client_of("127.0.0.1").get("/", headers={"Host": name})
    assert (answer.status_code, answer.text) == (403, "this page answers to 127.0.0.1, ::1, localhost only")


def test_a_page_for_others_answers_to_any_name():
    assert client_of("0.0.0.0").get("/", headers={"Host": "chat.example"}).text == "a secret"


@pytest.mark.parametrize("origin", ["https://evil.example", "http://127.0.0.1:8000", "http://localhost:7860", "null"])
@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_another_page_changes_nothing(host, origin):
    client = client_of(host)
    headers = {"Host": "127.0.0.1:7860", "Origin": origin}
    assert client.post("/", headers=headers).status_code == 403
    with pytest.raises(WebSocketDisconnect), client.websocket_connect("/live", headers=headers):
        pass


def test_the_page_itself_and_programs_may_change_things():
    client = client_of("127.0.0.1")
    own = {"Host": "127.0.0.1:7860", "Origin": "http://127.0.0.1:7860"}
    assert client.post("/", headers=own).text == "a secret"
    assert client.post("/").text == "a secret", "a program names no origin"
    with client.websocket_connect("/live", headers=own) as socket:
        assert socket.receive_text() == "a secret"


def test_every_answer_forbids_the_page_to_fetch_anything_from_elsewhere():
    headers = client_of("127.0.0.1").get("/").headers
    assert "default-src 'self'" in headers["Content-Security-Policy"]
    assert "http" not in headers["Content-Security-Policy"]
    assert headers["Referrer-Policy"] == "no-referrer"
