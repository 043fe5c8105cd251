"""The page as it is really served, asked for what no page of ours asks for: by strangers, other users, other sites."""

import json
from urllib.parse import urlencode

import pytest

from page_asker import Asker, closed_with, logged_in
from patience import PATIENCE_S
from raw_request import UPGRADE, answer_to

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


def test_who_logs_out_takes_the_cookie_s_use_along_and_nobody_else_s(url):
    here, elsewhere = (Asker(url, "; ".join(one.partition(";")[0] for one in logged_in(url, "ann"))) for _ in range(2))
    assert here.post("/paged-chat/logout") == (200, "{}")
    assert [one.post("/paged-chat/logout")[0] for one in (here, Asker(url))] == [401, 401]
    assert elsewhere("GET", "/paged-chat/search?q=a")[0] == 200


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


@pytest.mark.parametrize(
    ("head", "status"),
    [
        ("GET /paged-chat/export/all.json HTTP/1.1\nHost: {own}", 200),
        ("GET http://{own}/paged-chat/export/all.json HTTP/1.1\nHost: evil.example", 403),
        ("GET http://evil.example/paged-chat/export/all.json HTTP/1.1\nHost: {own}", 404),
        ("GET /paged-chat/export/all.json HTTP/1.1\nHost: {own}\nHost: evil.example", 400),
        ("GET /paged-chat/export/all.json HTTP/1.0", 403),
        # Gradio answers a page that asks for leave before the guard does, and gives none.
        ("OPTIONS /paged-chat/import HTTP/1.1\nHost: {own}\nOrigin: null\nAccess-Control-Request-Method: POST", 200),
        (f"GET /paged-chat/live HTTP/1.1\nHost: evil.example\n{UPGRADE}", 403),
        (f"GET /paged-chat/live HTTP/1.1\nHost: {{own}}\nOrigin: https://evil.example\n{UPGRADE}", 403),
        (f"GET /paged-chat/panel HTTP/1.1\nHost: {{own}}\nOrigin: null\n{UPGRADE}", 403),
    ],
)
def test_a_cookie_helps_nobody_who_asks_in_anothers_name(ann, head, status):
    told, rest = answer_to(ann.address, f"{head.format(own=ann.address)}\nCookie: {ann.headers['Cookie']}")
    assert told == status
    assert "access-control-allow-origin" not in rest.lower()  # without which a browser gives no page the answer


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
        while (news := json.loads(socket.recv(PATIENCE_S)))["kind"] not in ("pool", "block"):
            assert news["kind"] == "no pool"  # the model isn't loaded yet


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
