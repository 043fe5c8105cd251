"""A request can fill neither the memory nor the server's time."""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from paged_chat.app.api.body_limit import BodyLimit


async def count(request: Request) -> PlainTextResponse:
    return PlainTextResponse(str(len(await request.body())))


def app_of(**limits: Any) -> Starlette:
    routes = [Route(path, count, methods=["POST"]) for path in ("/", "/file")]
    return Starlette(routes=routes, middleware=[Middleware(BodyLimit, **limits)])


def pieces(num_pieces: int) -> Iterator[bytes]:
    """Sent in chunks, without saying how many will come."""
    yield from (b"x" * 10 for _ in range(num_pieces))


def test_a_body_within_the_limit_passes():
    assert TestClient(app_of(max_bytes=30)).post("/", content=pieces(3)).text == "30"


def test_a_body_is_refused_as_soon_as_it_is_longer_whatever_length_it_claims():
    client = TestClient(app_of(max_bytes=30))
    for content in (b"x" * 31, pieces(4)):
        answer = client.post("/", content=content)
        assert (answer.status_code, answer.text) == (413, "a request may carry 30 bytes: send less at once")


def test_what_counts_its_own_bytes_may_be_longer():
    assert TestClient(app_of(max_bytes=30, streamed=["/file"])).post("/file", content=b"x" * 31).text == "31"


def test_all_bodies_together_have_a_limit_and_leave_it_when_they_are_answered():
    is_read, may_answer = threading.Event(), threading.Event()

    async def hold(request: Request) -> PlainTextResponse:
        await request.body()
        is_read.set()
        await asyncio.to_thread(may_answer.wait)
        return PlainTextResponse("held")

    app = app_of(max_bytes=30, max_total=50)
    app.router.routes.append(Route("/hold", hold, methods=["POST"]))
    with TestClient(app) as client:
        holding = threading.Thread(target=client.post, args=["/hold"], kwargs={"content": b"x" * 30})
        holding.start()
        is_read.wait()
        assert client.post("/", content=b"x" * 20).text == "20"
        assert client.post("/", content=b"x" * 21).status_code == 503
        may_answer.set()
        holding.join()
        assert client.post("/", content=b"x" * 30).text == "30"


def test_a_body_that_stops_coming_is_not_waited_for():
    sent = []

    async def never() -> dict[str, object]:
        if not sent:
            sent.append({"type": "first"})
            return {"type": "http.request", "body": b"x", "more_body": True}
        return await asyncio.Future[dict[str, object]]()

    async def send(message: dict[str, object]) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/", "headers": [], "query_string": b""}
    asyncio.run(app_of(pause_s=0.01)(scope, never, send))
    assert sent[1]["status"] == 408


def test_after_the_body_there_is_no_hurry():
    """What a stream awaits of its request is the end of the connection, which may be hours away."""

    async def wait_for_end(request: Request) -> PlainTextResponse:
        await request.body()
        return PlainTextResponse((await request.receive())["type"])

    app = app_of(pause_s=0.01)
    app.router.routes.append(Route("/wait", wait_for_end, methods=["POST"]))
    sent = []

    async def receive() -> dict[str, object]:
        if not sent:
            sent.append({"type": "first"})
            return {"type": "http.request", "body": b""}
        await asyncio.sleep(0.05)
        return {"type": "http.disconnect"}

    async def send(message: dict[str, object]) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/wait", "headers": [], "query_string": b""}
    asyncio.run(app(scope, receive, send))
    assert [sent[1]["status"], sent[2]["body"]] == [200, b"http.disconnect"]
