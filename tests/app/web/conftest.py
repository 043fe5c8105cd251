"""A page for two people, and those who ask it: ann, bob, and a stranger."""

from collections.abc import Iterator

import pytest

from fake_engine import FakeEngine
from free_port import free_port
from page_asker import PASSWORDS, Asker, logged_in
from paged_chat.app.api.accounts import Accounts
from paged_chat.app.service.chat_service import ChatService
from paged_chat.app.store.store import Store
from paged_chat.app.web.server import WebServer


@pytest.fixture(scope="package")
def url() -> Iterator[str]:
    """A page for two people, served once: gradio takes seconds to import and to launch."""
    engine = FakeEngine()
    with Store(":memory:") as store, ChatService(store, engine.open) as service:
        server = WebServer(service, "127.0.0.1", free_port(), Accounts(PASSWORDS), token="the-token")
        yield server.url
        server.close()
    engine.close()


@pytest.fixture(scope="package")
def cookies(url: str) -> dict[str, str]:
    """What a browser sends back after each of them has logged in."""
    return {name: "; ".join(one.partition(";")[0] for one in logged_in(url, name)) for name in PASSWORDS}


@pytest.fixture
def stranger(url: str) -> Asker:
    return Asker(url)


@pytest.fixture
def ann(url: str, cookies: dict[str, str]) -> Asker:
    return Asker(url, cookies["ann"])


@pytest.fixture
def bob(url: str, cookies: dict[str, str]) -> Asker:
    return Asker(url, cookies["bob"])
