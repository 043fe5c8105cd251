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
    routes = [Route("/", answer, methods=["GET", "POST"]), Route("/secret", answer), WebSocketRoute("/live", greet)]
    return TestClient(Starlette(routes=routes, middleware=[Middleware(Guard, names=names_of(host))]), address)


@pytest.mark.parametrize(
    "name", ["127.0.0.1:7860", "localhost:7860", "[::1]:7860", "[::1]", "127.0.0.1", "LocalHost:7860", "localhost:0"]
)
def test_a_page_of_this_machine_answers_to_this_machines_names(name):
    assert client_of("127.0.0.1").get("/", headers={"Host": name}).text == "a secret"


@pytest.mark.parametrize(
    "name",
    [
        "evil.example", "evil.example:7860", "127.0.0.1.evil.example", "", "192.168.1.2", "[", "[::1", "localhost.",
        "evil@localhost", "localhost:7860@evil.example", "localhost:7860:1", "127.0.0.1:x", "127.0.0.1, evil.example",
        "localhost/", "localhost.:7860", "EVIL.example:7860", "evil.example:0", "[::1].evil.example", "::1", "[::1%lo]",
        # Ways of writing this machine that no address bar keeps, and some that lead to it where 127.0.0.1 is guarded.
        "0.0.0.0:7860", "127.1", "2130706433", "0x7f000001", "[::]:7860", "[::ffff:127.0.0.1]:7860",
        "[0:0:0:0:0:0:0:1]",
    ],
)  # fmt: skip
def test_a_name_that_was_made_to_point_here_is_refused(name):
    answer = client_of("127.0.0.1").get("/", headers={"Host": name})
    assert (answer.status_code, answer.text) == (403, "this page answers to 127.0.0.1, ::1, localhost only")


def test_a_page_for_others_answers_to_any_name():
    assert client_of("0.0.0.0").get("/", headers={"Host": "chat.example"}).text == "a secret"


@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example",
        "http://127.0.0.1:8000",
        "http://localhost:7860",
        "null",
        "",
        "http://[",
        "127.0.0.1:7860",
    ],
)
@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_another_page_changes_nothing_and_reads_nothing(host, origin):
    client = client_of(host)
    headers = {"Host": "127.0.0.1:7860", "Origin": origin}
    assert client.post("/", headers=headers).status_code == 403
    assert client.get("/", headers=headers).status_code == 403
    with pytest.raises(WebSocketDisconnect), client.websocket_connect("/live", headers=headers):
        pass


def test_another_page_that_asks_for_leave_first_is_given_none():
    """Before a request of its own making a browser asks by OPTIONS; without leave it sends nothing else."""
    asking = {
        "Host": "127.0.0.1:7860",
        "Origin": "https://evil.example",
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization, content-type",
        "Access-Control-Request-Private-Network": "true",
    }
    answer = client_of("127.0.0.1").options("/", headers=asking)
    assert answer.status_code == 403
    assert not [name for name in answer.headers if name.startswith("access-control")]


def test_a_page_under_a_name_that_was_made_to_point_here_opens_no_socket():
    """To itself it is of one origin, so only the name tells."""
    own = {"Host": "evil.example:7860", "Origin": "http://evil.example:7860", "Sec-Fetch-Site": "same-origin"}
    with pytest.raises(WebSocketDisconnect), client_of("127.0.0.1").websocket_connect("/live", headers=own):
        pass


def test_the_page_itself_and_programs_may_change_things():
    client = client_of("127.0.0.1")
    own = {"Host": "127.0.0.1:7860", "Origin": "http://127.0.0.1:7860"}
    assert client.post("/", headers=own).text == "a secret"
    assert client.post("/").text == "a secret", "a program names no origin"
    with client.websocket_connect("/live", headers=own) as socket:
        assert socket.receive_text() == "a secret"


def test_a_page_for_others_without_a_host_is_no_page_of_theirs():
    """HTTP/1.0 knows no Host: an empty one must not equal an origin that says nothing."""
    assert client_of("0.0.0.0").post("/", headers={"Host": "", "Origin": "null"}).status_code == 403


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
@pytest.mark.parametrize(
    ("mode", "dest", "path", "status"),
    [
        ("navigate", "document", "/", 200),  # a link to the page
        ("navigate", "document", "/secret", 403),
        ("navigate", "iframe", "/", 403),
        ("navigate", "object", "/", 403),
        ("no-cors", "image", "/secret", 403),
        ("no-cors", "script", "/", 403),
        ("cors", "empty", "/", 403),
    ],
)
def test_another_site_may_link_to_the_page_and_no_more(site, mode, dest, path, status):
    headers = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": mode, "Sec-Fetch-Dest": dest}
    assert client_of("127.0.0.1").get(path, headers=headers).status_code == status


@pytest.mark.parametrize("site", ["same-origin", "none"])
def test_the_page_and_the_address_bar_reach_everything(site):
    assert client_of("127.0.0.1").get("/secret", headers={"Sec-Fetch-Site": site}).text == "a secret"


def test_every_answer_forbids_the_page_to_fetch_anything_from_elsewhere():
    headers = client_of("127.0.0.1").get("/").headers
    assert "default-src 'self'" in headers["Content-Security-Policy"]
    assert "http" not in headers["Content-Security-Policy"]
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Cross-Origin-Opener-Policy"] == "same-origin"
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
