"""How long a token takes from the engine to the page, in a chat of 500 messages.

    python tests/benchmarks/page_latency.py

The engine is a FakeEngine that says a token every 20 ms, so that what is measured is the way, not the model. Both ends
read the same machine's clock.
"""

import statistics
import sys
import tempfile
import time
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

from playwright.sync_api import expect, sync_playwright

sys.path.insert(0, str(Path(__file__).parent.parent / "support"))

from chat_page import LAUNCH, ChatPage, context_of, free_port
from fake_engine import FakeEngine
from paged_chat.app.api.accounts import Accounts
from paged_chat.app.imported_chat import ImportedChat, ImportedMessage
from paged_chat.app.imports import import_engine, import_page
from paged_chat.app.service.chat_service import ChatService
from paged_chat.app.store.store import Store
from paged_chat.app.web.server import WebServer

NUM_MESSAGES = 500
NUM_TOKENS = 400
STEP_S = 0.02
REPLY = ("Some words of a reply that goes on, *as they do*, line after line. " * 40)[:NUM_TOKENS]

WATCH = """
window.seen = [];
new MutationObserver(() => {
  const bodies = document.querySelectorAll(".is-live .body");
  if (bodies.length) window.seen.push([Date.now(), bodies[bodies.length - 1].textContent.length]);
}).observe(document.querySelector(".messages"), { childList: true, subtree: true, characterData: true });
"""


def main() -> None:
    import_engine()
    import_page()  # as the command does: Python's collector never looks at what they bring
    engine = FakeEngine(max_model_len=65_536, num_blocks=6_000)
    engine.pace.pause_s = STEP_S
    stepped_at: list[float] = []  # s, when each token of the reply was drawn

    with (
        tempfile.TemporaryDirectory() as folder,
        Store(Path(folder) / "chats.db") as store,
        ChatService(store, engine.open) as service,
        sync_playwright() as playwright,
    ):
        [chat] = service.import_chats([history()])
        server = WebServer(service, "127.0.0.1", free_port(), Accounts({}), token="secret")
        browser = playwright.chromium.launch(**LAUNCH)
        with context_of(browser) as context:
            page = ChatPage(context.new_page(), server.url).open(chat.id)
            expect(page.messages.last).to_be_visible()
            page.page.evaluate(WATCH)
            engine.enqueue(REPLY)
            [model] = engine.models
            core = model._scripted_core
            append = core._append

            def note(*arguments):
                stepped_at.append(time.time())
                return append(*arguments)

            core._append = note  # type: ignore[method-assign]
            page.ask("Go on")
            seen = page.page.evaluate("window.seen")
        browser.close()
        server.close()

    # The text's letters are its tokens, but for signs of Markdown that aren't shown and "he", which is one token.
    shown_s = latencies(seen, stepped_at)
    median = statistics.median(shown_s)
    print(f"{NUM_MESSAGES} messages, {len(stepped_at)} tokens, {len(seen)} updates of the page")
    print(f"from the step to the page: median {median * 1000:.0f} ms, p95 {quantile(shown_s, 0.95) * 1000:.0f} ms")
    # What came late came after one of these, or all of it was late.
    updated_at = [at_ms / 1000 for at_ms, _ in seen]
    print(f"longest pauses: of the engine {longest_ms(stepped_at)}; of the page {longest_ms(updated_at)}")
    rate = (len(stepped_at) - 1) / (stepped_at[-1] - stepped_at[0])
    print(f"the engine went at {rate:.1f} tokens a second of {1 / STEP_S:.0f} that it would without anybody looking")


def latencies(seen: list[list[float]], stepped_at: list[float]) -> list[float]:
    """For each letter of the reply, how long after its step it was there; in seconds."""
    shown = []
    num_letters = 0
    per_letter = len(stepped_at) / seen[-1][1]
    for at_ms, length in seen:
        for letter in range(num_letters, int(length)):
            token = min(int(letter * per_letter), len(stepped_at) - 1)
            shown.append(at_ms / 1000 - stepped_at[token])
        num_letters = max(num_letters, int(length))
    return shown


def longest_ms(moments_s: list[float]) -> str:
    """The three longest pauses, each with its end, counted from the first moment."""
    pauses = sorted(((after - before, after - moments_s[0]) for before, after in pairwise(moments_s)), reverse=True)[:3]
    return ", ".join(f"{1000 * pause:.0f} ms (until {1000 * until:.0f})" for pause, until in pauses)


def quantile(values: list[float], share: float) -> float:
    return sorted(values)[int(share * (len(values) - 1))]


def history() -> ImportedChat:
    now = datetime.now(UTC)
    messages = tuple(
        ImportedMessage(
            parent=index - 1 if index else None,
            role="assistant" if index % 2 else "user",
            text=f"Message {index}, **with** some `words` in it.",
            created_at=now,
        )
        for index in range(NUM_MESSAGES)
    )
    return ImportedChat(title="Long", messages=messages, active_leaf=NUM_MESSAGES - 1, created_at=now, updated_at=now)


if __name__ == "__main__":
    main()
