"""The page as it is really served, asked for what no page of ours asks for: by strangers, other users, other sites."""

import http.client
import json
from collections.abc import Iterator
from urllib.parse import urlencode

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from fake_engine import FakeEngine
from free_port import free_port
from paged_chat.app.api.accounts import Accounts
from paged_chat.app.service.chat_service import ChatService
from paged_chat.app.store.store import Store
from paged_chat.app.web.server import WebServer
from patience import PATIENCE_S

PASSWORDS = {"ann": "a-secret", "bob": "b-secret"}


class Asker:
    """A program that knows the address, and perhaps a cookie."""

    def __init__(self, url: str, cookie: str | None = None) -> None:
        self.address = url.removeprefix("http://")
        self.headers = {} if cookie is None else {"Cookie": cookie}

    def __call__(self, method: str, path: str, body: str | bytes | None = None, **headers: str) -> tuple[int, str]:
        answer, text = self.open(method, path, body, **headers)
        return answer.status, text

    def open(
        self, method: str, path: str, body: str | bytes | None = None, **headers: str
    ) -> tuple[http.client.HTTPResponse, str]:
        connection = http.client.HTTPConnection(self.address, timeout=PATIENCE_S)
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body, {"Content-Type": "application/json", **self.headers, **given})
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer, text

    def post(self, path: str, body: str = "{}") -> tuple[int, str]:
        return self("POST", path, body)

    def new_chat(self) -> str:
        chat_id: str = json.loads(self.post("/paged-chat/chats")[1])["chat_id"]
        return chat_id

    def socket(self, path: str) -> ClientConnection:
        return connect(f"ws://{self.address}{path}", additional_headers=self.headers, open_timeout=PATIENCE_S)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A page for two people, served once: gradio takes seconds to import and to launch."""
    engine = FakeEngine()
    with Store(":memory:") as store, ChatService(store, engine.open) as service:
        server = WebServer(service, "127.0.0.1", free_port(), Accounts(PASSWORDS), token="the-token")
        yield server.url
        server.close()
    engine.close()


@pytest.fixture(scope="module")
def cookies(url: str) -> dict[str, str]:
    """What a browser sends back after each of them has logged in."""
    return {name: "; ".join(one.partition(";")[0] for one in logged_in(url, name)) for name in PASSWORDS}


def logged_in(url: str, name: str) -> list[str]:
    form = urlencode({"username": name, "password": PASSWORDS[name]})
    answer, _ = Asker(url).open("POST", "/login", form, Content_Type="application/x-www-form-urlencoded")
    assert answer.status == 200
    return answer.headers.get_all("Set-Cookie", [])


@pytest.fixture
def stranger(url: str) -> Asker:
    return Asker(url)


@pytest.fixture
def ann(url: str, cookies: dict[str, str]) -> Asker:
    return Asker(url, cookies["ann"])


@pytest.fixture
def bob(url: str, cookies: dict[str, str]) -> Asker:
    return Asker(url, cookies["bob"])


# Gradio's doors


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/gradio_api/upload"),
        ("GET", "/gradio_api/upload_progress?upload_id=a"),
        ("GET", "/gradio_api/file=/etc/passwd"),
        ("GET", "/gradio_api/file/etc/passwd"),
        ("GET", "/gradio_api/file=https://evil.example/"),
        ("GET", "/gradio_api/proxy=https://evil.hf.space/"),
        ("GET", "/gradio_api/token"),
        ("GET", "/gradio_api/custom_component/a/client/component/../../../../etc/passwd"),
        ("GET", "/gradio_api/dev/reload"),
        ("GET", "/gradio_api/openapi.json"),
        ("GET", "/gradio_api/info"),
        ("GET", "/gradio_api/stream/a/1/1/playlist.m3u8"),
        ("POST", "/gradio_api/component_server"),
        ("POST", "/gradio_api/process_recording"),
        ("POST", "/gradio_api/vibe-edit"),
        ("GET", "/monitoring"),
        ("GET", "/openapi.json"),
    ],
)
def test_doors_that_the_page_does_not_use_are_closed_even_to_those_who_may_come_in(ann, method, path):
    assert ann(method, path) == (404, '{"error":"there is no such page"}')


@pytest.mark.parametrize(
    "path",
    [
        "/static/../../../../etc/passwd",
        "/static/%2e%2e/%2e%2e/%2e%2e/etc/passwd",
        "/assets/..%2f..%2f..%2fconfig.py",
        "/paged-chat/assets/..%2fserver.py",
        "/paged-chat/assets/%2e%2e/server.py",
        "/paged-chat/assets//etc/passwd",
    ],
)
def test_no_path_leads_out_of_the_folders_that_are_served(stranger, path):
    status, _ = stranger("GET", path)
    assert status in (403, 404)


# Who may come in


def test_a_login_cookie_is_for_this_page_alone_and_no_script_reads_it(url):
    cookies = logged_in(url, "ann")
    assert len(cookies) == 2, "one for encrypted pages, one for others"
    for cookie in cookies:
        flags = {flag.strip().lower() for flag in cookie.split(";")[1:]}
        assert {"httponly", "samesite=lax", "path=/"} <= flags
        assert not any(flag.startswith(("domain", "samesite=none")) for flag in flags)


@pytest.mark.parametrize("path", ["/paged-chat/chats", "/paged-chat/import?name=a", "/paged-chat/attachments?name=a"])
def test_nothing_of_a_strangers_request_is_read(stranger, path):
    """It claims a megabyte and sends none of it, and is answered all the same."""
    assert stranger("POST", path, b"", Content_Length="1000000")[0] == 401


@pytest.mark.parametrize("path", ["/paged-chat/export/all.json", "/paged-chat/search?q=a", "/paged-chat/no-such-route"])
@pytest.mark.parametrize("cookie", [None, "access-token-unsecure-x=a", "access-token-=; access-token-unsecure-="])
def test_a_stranger_reads_nothing(url, path, cookie):
    assert Asker(url, cookie)("GET", path)[0] == 401


@pytest.mark.parametrize("path", ["/paged-chat/live", "/paged-chat/panel"])
def test_a_stranger_hears_nothing(stranger, path):
    with stranger.socket(path) as socket:
        assert closed_with(socket) == 4401


CHAT_REQUESTS = [
    "", "/send", "/delete", "/restore", "/keep", "/stop", "/plan", "/compare", "/plan-comparison",
    *(f"/messages/1/{what}" for what in ("edit", "retry", "continue", "pick", "fork", "delete", "restore", "stop")),
]  # fmt: skip


@pytest.mark.parametrize("request_path", CHAT_REQUESTS)
def test_another_persons_chat_is_no_chat(ann, bob, request_path):
    path = f"/paged-chat/chats/{ann.new_chat()}{request_path}"
    body = json.dumps({"text": "mine now", "title": "mine now", "variants": [{}, {}]})
    status, text = bob("POST", path, body)
    assert (status, json.loads(text)["type"]) == (404, "ChatNotFound")


@pytest.mark.parametrize("path", ["export/{}.json", "export/{}.md", "chats/{}/messages/1/plan?of=retry"])
def test_another_persons_chat_is_not_read(ann, bob, path):
    assert bob("GET", f"/paged-chat/{path.format(ann.new_chat())}")[0] == 404


def test_the_engines_door_opens_for_its_token_alone(stranger):
    for key in ("", "Bearer ", "Bearer the-token-", "Basic the-token", "Bearer \xff"):
        assert stranger("GET", "/paged-chat/engine", Authorization=key)[0] == 403
    assert stranger("GET", "/paged-chat/engine", Authorization="Bearer the-token")[0] == 200


# Other sites


@pytest.mark.parametrize("origin", ["https://evil.example", "http://localhost:3000", "http://127.0.0.1:3000", "null"])
def test_no_other_page_reads_anything_not_even_one_of_another_port(ann, origin):
    """Gradio gives every page of this machine leave to read."""
    answer, text = ann.open("GET", "/paged-chat/export/all.json", Origin=origin)
    assert (answer.status, text) == (403, "this request comes from another page")


def test_a_name_that_was_made_to_point_here_gets_no_answer_on_any_path(ann):
    for path in ("/", "/paged-chat/export/all.json", "/v1/models", "/config", "/paged-chat/assets/main.js"):
        assert ann("GET", path, Host="evil.example")[0] == 403


# What can't be read


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ('{"text": "a", "n": NaN}', "n: Input should be a valid integer"),
        ('{"text": "a", "n": 1e400}', "n: Input should be a valid integer"),
        ('{"text": "a", "n": 99}', "n: Input should be less than or equal to 16"),
        ('{"text": "a", "n": -1}', "n: Input should be greater than or equal to 1"),
        ('{"text": "a", "n": true}', "n: Input should be a valid integer"),
        ('{"text": "a", "n": "2"}', "n: Input should be a valid integer"),
        ('{"text": "\\ud800"}', "text: Input should be a valid string, unable to parse raw data as a unicode string"),
        ('{"text": ["\\ud800"]}', "text: Input should be a valid string"),
        ('"\\ud800"', "the request: Input should be a valid dictionary or object to extract fields from"),
        ('{"text": "a", "attachments": [{"name": "\\ud800"}]}', "attachments.0.name: "),
    ],
)
def test_what_no_page_sends_is_refused_in_words(ann, body, words):
    status, text = ann.post(f"/paged-chat/chats/{ann.new_chat()}/send", body)
    assert status == 422
    assert json.loads(text)["error"].startswith(words)


@pytest.mark.parametrize(
    "body",
    ["{", "[" * 100_000, '{"text": ' + "9" * 5000 + "}", "\x00"],
    ids=["cut", "deep", "huge", "NUL"],
)
def test_what_is_no_json_is_refused(ann, body):
    status, _ = ann.post(f"/paged-chat/chats/{ann.new_chat()}/send", body)
    assert status in (400, 422)


@pytest.mark.parametrize("path", ["/paged-chat/live", "/paged-chat/panel"])
@pytest.mark.parametrize(
    "message", ["{", "[" * 100_000, "9" * 5000, b"\xff\x00", ""], ids=["cut", "deep", "huge", "bytes", "empty"]
)
def test_what_no_page_says_ends_its_socket(ann, path, message):
    with ann.socket(path) as socket:
        socket.send(message)
        assert closed_with(socket) == 1007


def closed_with(socket: ClientConnection) -> int | None:
    """The code that the server closes it with, whatever it says before."""
    while True:
        try:
            socket.recv(PATIENCE_S)
        except ConnectionClosed as closed:
            return None if closed.rcvd is None else closed.rcvd.code


def test_what_a_page_may_not_know_does_no_harm(ann):
    """A chat of half a letter, of a number, a block that there isn't: the tab lives on."""
    odd = [{"kind": "open", "chat_id": 7}, {"kind": "older"}, {"kind": "list"}, {"kind": []}, [], 7, None, "open"]
    with ann.socket("/paged-chat/live") as socket:
        for message in odd:
            socket.send(json.dumps(message))
        socket.send('{"kind": "open", "chat_id": "\\ud800\\u0000"}')
        while (news := json.loads(socket.recv(PATIENCE_S)))["kind"] != "gone":
            assert news["kind"] in ("list", "engine")
        assert news["chat_id"] == "\ufffd\ufffd"
    with ann.socket("/paged-chat/panel") as socket:
        for message in [
            *odd,
            {"kind": "block", "id": 10**30},
            {"kind": "block", "id": -1},
            {"kind": "block", "id": True},
        ]:
            socket.send(json.dumps(message))
        assert json.loads(socket.recv(PATIENCE_S))["kind"] in ("pool", "block")


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("../../etc/passwd", "passwd"),
        ("C:\\a\\..\\b.txt", "b.txt"),
        ("\u202etxt.e\nxe", "\ufffdtxt.e\ufffdxe"),
        ("..", "file"),
    ],
)
def test_an_uploads_path_is_a_name_and_nothing_is_written(ann, name, kept):
    status, text = ann("POST", f"/paged-chat/attachments?{urlencode({'name': name})}", b"words")
    assert (status, json.loads(text)["name"]) == (200, kept)
