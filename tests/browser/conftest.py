"""The page served in this process, its engine a FakeEngine, and Debian's chromium to look at it."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from paged_chat.app.service.chat_service import ChatService
from paged_chat.app.service.default_sampling import GENERAL_SAMPLING
from paged_chat.app.service.model_fetch import FindModel
from paged_chat.app.store.store import Store, default_path
from paged_chat.engine.request import SamplingParams

pytest.importorskip("playwright", reason="playwright isn't installed")

from playwright.sync_api import Browser, sync_playwright

from chat_page import BROWSER, LAUNCH, ChatPage, Faults, context_of, free_port, is_browser_here
from fake_engine import FakeEngine
from patience import be_patient

# Where it is set, as in CI, a browser that is missing is an error.
REQUIRED = "PAGED_CHAT_REQUIRE_BROWSER"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker("browser")


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    be_patient(monkeypatch)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Closed with the module: while it is open, an event loop runs in this thread, and other tests start their own."""
    if not is_browser_here():
        if os.environ.get(REQUIRED):
            pytest.fail(f"{BROWSER} is missing, and {REQUIRED} is set: install Debian's chromium")
        pytest.skip(f"{BROWSER} is missing: install Debian's chromium to run the tests in a browser")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(**LAUNCH)
        yield browser
        browser.close()


@dataclass
class Served:
    """A page that is being served, and what is behind it."""

    url: str
    service: ChatService
    store: Store
    engine: FakeEngine


Serve = Callable[..., Served]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """`serve(accounts={"ann": "secret"}, max_model_len=512)` serves a page until the end of the test.

    find_model, default_sampling: as the service takes them.
    """
    from paged_chat.app.api.accounts import Accounts
    from paged_chat.app.web.server import WebServer

    ends: list[Callable[[], None]] = []

    def serve(
        accounts: dict[str, str] | None = None,
        engine: FakeEngine | None = None,
        find_model: FindModel | None = None,
        default_sampling: SamplingParams | None = GENERAL_SAMPLING,
        **options: Any,
    ) -> Served:
        engine = engine or FakeEngine(**options)
        store = Store(default_path())
        service = ChatService(store, engine.open, default_sampling=default_sampling, find_model=find_model)
        server = WebServer(service, "127.0.0.1", free_port(), Accounts(accounts or {}), token="secret")
        ends.extend([store.close, engine.close, service.close, server.close])
        return Served(server.url, service, store, engine)

    yield serve
    for end in reversed(ends):
        end()


@pytest.fixture
def served(serve: Serve) -> Served:
    return serve()


@pytest.fixture
def engine(served: Served) -> FakeEngine:
    return served.engine


@pytest.fixture
def faults() -> Iterator[Faults]:
    faults = Faults()
    yield faults
    faults.check()


OpenTab = Callable[..., ChatPage]


@pytest.fixture
def open_tab(browser: Browser, faults: Faults, serve: Serve, request: pytest.FixtureRequest) -> Iterator[OpenTab]:
    """`open_tab(viewport=PHONE)` opens a tab on the served page; each call with options is another browser window."""
    contexts: dict[str, Any] = {}
    ends: list[Any] = []

    def open_tab(chat_id: str | None = None, *, url: str | None = None, **options: object) -> ChatPage:
        key = repr(sorted(options.items()))
        if key not in contexts:
            manager = context_of(browser, **options)
            contexts[key] = manager.__enter__()
            ends.append(manager)
        page = contexts[key].new_page()
        faults.watch(page)
        return ChatPage(page, url or request.getfixturevalue("served").url).open(chat_id)

    yield open_tab
    for manager in ends:
        manager.__exit__(None, None, None)


@pytest.fixture
def chat(open_tab: OpenTab) -> ChatPage:
    """The page on a desk, with no chat open."""
    return open_tab()
