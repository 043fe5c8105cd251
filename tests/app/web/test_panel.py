"""The panel's line, and the one reader behind all of them, on a real pool of 12 blocks. Blocks hold 16 tokens."""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient, WebSocketTestSession
from starlette.websockets import WebSocketDisconnect

from fake_engine import FakeEngine
from paged_chat.app.engine_query import Query
from paged_chat.app.service.chat_service import ChatService, Result
from paged_chat.app.store.store import Store, default_path
from paged_chat.app.web import panel_source
from paged_chat.app.web.access import CLOSED_FOR_STRANGERS
from paged_chat.app.web.panel import router
from paged_chat.app.web.panel_source import BUSY_S, PoolLook, PoolSource
from patience import PATIENCE_S


class CountingService(ChatService):
    """Counts what is asked of the engine, and how many questions waited at once."""

    num_asked = num_waiting = most_waiting = 0

    def ask_engine(self, query: Query[Result]) -> Future[Result]:
        self.num_asked += 1
        self.num_waiting += 1
        self.most_waiting = max(self.most_waiting, self.num_waiting)
        answer = super().ask_engine(query)
        answer.add_done_callback(self._note_answer)
        return answer

    def _note_answer(self, _: Future[Any]) -> None:
        self.num_waiting -= 1


@pytest.fixture
def fake() -> Iterator[FakeEngine]:
    fake = FakeEngine(num_blocks=13)
    yield fake
    fake.close()


@pytest.fixture
def service(fake: FakeEngine) -> Iterator[CountingService]:
    service: CountingService
    with Store(default_path()) as store, CountingService(store, fake.open) as service:  # type: ignore[assignment]
        yield service


def ask(service: ChatService, text: str, user: str = "") -> None:
    """Sends, and waits for the end."""
    chat = service.create_chat(user=user)
    service.send(chat.id, text)
    for _ in service.watch(chat.id, until_idle=True):
        pass


def letters(source: PoolSource) -> str:
    """The picture; nothing where there is none."""
    return "" if source.view is None else source.view.letters


async def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


def test_all_who_watch_see_one_picture_and_ask_the_engine_once(service, fake):
    fake.enqueue("hi")

    async def watch() -> None:
        source = PoolSource(service)
        with source.watch() as one, source.watch() as two:
            await until(lambda: source.view is not None)
            assert letters(source) == "············"
            one.clear()
            two.clear()
            await asyncio.to_thread(ask, service, "the quick brown fox")
            await until(lambda: letters(source) == "ccc·········")  # two seconds later they have faded
            assert one.is_set()
            assert two.is_set()
        assert service.most_waiting == 1

    asyncio.run(watch())


def test_while_nothing_happens_nobody_is_told_and_while_nobody_watches_nothing_is_asked(service):
    async def watch() -> None:
        source = PoolSource(service)
        with source.watch() as changed:
            await asyncio.wait_for(changed.wait(), PATIENCE_S)
            changed.clear()
            await asyncio.sleep(1.5)
            assert not changed.is_set()
        num_asked = service.num_asked
        await asyncio.sleep(5 * BUSY_S)
        assert service.num_asked == num_asked
        with source.watch():
            await until(lambda: service.num_asked > num_asked)

    asyncio.run(watch())


def test_a_fault_of_one_look_is_logged_and_the_next_one_brings_the_picture(service, monkeypatch, caplog):
    look = PoolSource._look
    faults = [ZeroDivisionError("once")]

    async def faulty(self: PoolSource) -> PoolLook:
        if faults:
            raise faults.pop()
        return await look(self)

    monkeypatch.setattr(PoolSource, "_look", faulty)
    monkeypatch.setattr(panel_source, "RETRY_S", 0.01)

    async def watch() -> None:
        source = PoolSource(service)
        with source.watch():
            await until(lambda: source.view is not None)

    asyncio.run(watch())
    assert [record.getMessage() for record in caplog.records] == ["the pool could not be read; it is tried again"]


def test_a_step_that_takes_long_is_waited_for_with_one_question(service, fake):
    async def watch() -> None:
        source = PoolSource(service)
        with source.watch():
            await until(lambda: source.view is not None)
            fake.stall()
            chat = service.create_chat()
            service.send(chat.id, "a very long prompt")
            await until(lambda: service.num_waiting == 1)
            num_asked = service.num_asked
            await asyncio.sleep(5 * BUSY_S)
            assert service.num_asked <= num_asked + 1
            assert service.most_waiting == 1
            fake.go()
            await until(lambda: source.view is not None and source.view.num_cached > 0)

    asyncio.run(watch())


def test_there_is_no_picture_without_an_engine_and_one_as_soon_as_it_has_loaded(fake):
    fake.load_error = RuntimeError("no memory left")

    async def watch(service: ChatService) -> None:
        source = PoolSource(service)
        with source.watch():
            await until(lambda: service.engine_status.phase == "failed")
            assert source.view is None
            fake.load_error = None
            service.switch_model("another")
            await until(lambda: source.view is not None)

    with Store(default_path()) as store, ChatService(store, fake.open) as service:
        asyncio.run(watch(service))


# The line


def client_of(service: ChatService, users: dict[str, str] | None = None) -> TestClient:
    """A browser of an application whose login gave out these tokens; without users there are no accounts."""
    app = Application(routes=[*router.routes])
    app.state.chat_service = service
    app.state.pool_source = PoolSource(service)
    app.auth = users
    app.tokens = users or {}
    return TestClient(app)


class Application(FastAPI):
    """With what Gradio's application has of a login."""

    auth: Mapping[str, str] | None
    cookie_id = "here"
    tokens: Mapping[str, str]


def block(line: WebSocketTestSession, block_id: int) -> dict[str, Any]:
    """What the line says of a block, whatever else it tells meanwhile."""
    line.send_json({"kind": "block", "id": block_id})
    while (news := line.receive_json())["kind"] != "block":
        pass
    return news


def test_a_line_tells_the_pool_and_the_block_that_is_pointed_at(service, fake):
    fake.enqueue("hi")
    ask(service, "the quick brown fox")
    with client_of(service) as client, client.websocket_connect("/paged-chat/panel") as line:
        news = line.receive_json()
        while news["kind"] != "pool":
            news = line.receive_json()
        assert news["num_blocks"] == 12
        [used, free] = news["runs"]
        assert used in ([1, 3, "f", 0], [1, 3, "c", 0]), "freed, and cached two seconds later"
        assert free == [4, 9, "·", 0]
        assert news["figures"]["freed"] == 3
        assert [f"{word} {count}" for _, word, count, _ in news["log"]] == ["published 3", "freed 3"]
        first = block(line, 1)
        assert (first["state"], first["text"], first["is_withheld"]) == ("cached", "user:the quick b", False)
        assert first["figures"].endswith("tokens 0 to 15")
        line.send_json({"kind": "block", "id": 99})
        line.send_json({"kind": "what?"})
        assert block(line, 12)["state"] == "free"


def test_with_accounts_the_text_of_others_stays_theirs_and_strangers_see_nothing(service, fake):
    ask(service, "the quick brown fox", user="ann")
    with client_of(service, {"ann-token": "ann"}) as client, client.websocket_connect("/paged-chat/panel") as line:
        with pytest.raises(WebSocketDisconnect) as refused:
            line.receive_json()
        assert refused.value.code == CLOSED_FOR_STRANGERS
    told = {}
    for name in ("ann", "bob"):
        with client_of(service, {f"{name}-token": name}) as client:
            client.cookies.set("access-token-unsecure-here", f"{name}-token")
            with client.websocket_connect("/paged-chat/panel") as line:
                told[name] = block(line, 1)
    assert told["ann"]["text"] == "user:the quick b"
    assert (told["bob"]["state"], told["bob"]["text"], told["bob"]["is_withheld"]) == ("cached", "", True)
    assert "hash" not in told["bob"]["figures"]
