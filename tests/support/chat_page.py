"""The page as a person uses it, driven in a real browser."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Browser, BrowserContext, Locator, Page, ViewportSize, expect

from free_port import free_port as free_port
from paged_chat.app import web
from patience import PATIENCE_S

BROWSER = "/usr/bin/chromium"
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
# Without bars, as playwright has it, a page can't be seen to make room for one.
LAUNCH: dict[str, Any] = {"executable_path": BROWSER, "args": FLAGS, "ignore_default_args": ["--hide-scrollbars"]}
DESK = ViewportSize(width=1400, height=900)
PHONE = ViewportSize(width=390, height=844)
PATIENCE_MS = PATIENCE_S * 1000

expect.set_options(timeout=PATIENCE_MS)


@dataclass
class Faults:
    """What a page did that it never should: words on the console, requests that leave the machine."""

    expected_errors: list[str] = field(default_factory=list)  # parts of words on the console that a test causes
    console: list[str] = field(default_factory=list)
    elsewhere: list[str] = field(default_factory=list)

    def watch(self, page: Page) -> None:
        page.on("console", lambda message: self._note(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: self._note(error.stack or str(error)))
        page.on("request", lambda request: self._note_request(request.url))
        page.on("websocket", lambda socket: self._note_request(socket.url))

    def check(self) -> None:
        assert self.console == []
        assert self.elsewhere == []

    def _note(self, words: str) -> None:
        if not any(part in words for part in self.expected_errors):
            self.console.append(words)

    def _note_request(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("data", "blob") and parts.hostname != "127.0.0.1":
            self.elsewhere.append(url)


class ChatPage:
    """One tab. What it shows is found by what people and screen readers find it by."""

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.url = url
        self.field = page.get_by_role("textbox", name="Message", exact=True)
        self.messages = page.locator(".message")
        self.questions = page.locator(".message.is-user")
        self.replies = page.locator(".message.is-assistant")
        self.price = page.locator(".composer .price")
        self.rows = page.locator(".chat-row")
        self.notice = page.locator(".notice")

    def open(self, chat_id: str | None = None) -> "ChatPage":
        self.page.goto(self.url if chat_id is None else f"{self.url}/?chat={chat_id}")
        expect(self.field).to_be_visible()
        return self

    @property
    def chat_id(self) -> str | None:
        found = re.search(r"[?&]chat=(\w+)", self.page.url)
        return found and found[1]

    def send(self, text: str) -> None:
        self.field.fill(text)
        self.field.press("Enter")

    def ask(self, text: str) -> None:
        """Sends, and waits for the end of the reply."""
        self.send(text)
        expect(self.questions.last).to_contain_text(text)
        self.wait_for_end()

    def wait_for_end(self) -> None:
        expect(self.replies.last).to_have_attribute("aria-busy", "false")
        expect(self.page.locator(".is-live")).to_have_count(0)

    def reply(self, index: int = -1) -> Locator:
        return self.replies.nth(index).locator(".body")

    def press(self, message: Locator, name: str) -> None:
        """One of the buttons of a message, which show when the pointer is on it."""
        message.hover()
        message.get_by_role("button", name=re.compile(f"^{name}")).click()

    def choose(self, row: Locator, name: str) -> None:
        """One of the entries of a chat's menu."""
        row.hover()
        row.get_by_role("button", name=re.compile("^More for")).click()
        self.page.get_by_role("menuitem", name=name, exact=True).click()

    def open_settings(self) -> Locator:
        self.page.get_by_role("button", name="Settings", exact=True).click()
        drawer = self.page.locator("#pc-settings")
        expect(drawer).to_be_visible()
        expect(drawer).not_to_have_class(re.compile("is-loading"))
        return drawer

    def overflow(self) -> int:
        """By how many pixels the page is wider than the window."""
        return int(self.page.evaluate("document.documentElement.scrollWidth - innerWidth"))


@contextmanager
def context_of(browser: Browser, **options: object) -> Iterator[BrowserContext]:
    context = browser.new_context(**{"viewport": DESK, **options})  # type: ignore[arg-type]
    context.set_default_timeout(PATIENCE_MS)
    context.add_init_script(_what_passes_stays())
    try:
        yield context
    finally:
        context.close()


def _what_passes_stays() -> str:
    """Notices, and the word that something is copied, don't go by themselves: a busy machine would look too late."""
    assets = Path(web.__file__).with_name("assets")
    times_ms = [
        re.search(rf"^const {name} = (\d+);", (assets / file).read_text(), re.MULTILINE)
        for file, name in (("notices.js", "NOTICE_MS"), ("message.js", "COPIED_MS"))
    ]
    passing = [int(found[1]) for found in times_ms if found]
    assert len(passing) == len(times_ms), "a name that is looked for has changed"
    return f"""
        const later = window.setTimeout.bind(window);
        window.setTimeout = (run, ms, ...given) => later(run, {passing}.includes(ms) ? 2 ** 31 - 1 : ms, ...given);
    """


def is_browser_here() -> bool:
    return Path(BROWSER).is_file()
