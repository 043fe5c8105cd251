"""The page with the real model behind it, begun as a person begins it."""

import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from chat_page import ChatPage, context_of, free_port
from patience import PATIENCE_S


@pytest.fixture
def command(default_model: str, tmp_path, monkeypatch) -> Iterator[str]:
    """The address of a `paged-chat web` in a process of its own."""
    url = f"http://127.0.0.1:{(port := free_port())}"
    arguments = [sys.executable, "-P", "-c", "from paged_chat.app.cli import main; main()", "web", "--port", str(port)]
    begin = time.monotonic()
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == f"paged-chat is at {url} (Ctrl-C ends it)\n"
        print(f"page after {time.monotonic() - begin:.1f} s")
        yield url
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0


def number(cost: str, of: str) -> int:
    found = re.search(rf"(\d+) {of}", cost)
    assert found is not None, cost
    return int(found[1])


def test_a_chat_with_the_default_model(browser, command, faults):
    with context_of(browser) as context:
        page = context.new_page()
        faults.watch(page)
        chat = ChatPage(page, command).open()
        try:
            chat.send("Name the capital of France, in one word.")
            expect(chat.replies).to_have_attribute("aria-busy", "false")
            first = chat.replies.locator(".cost")
            expect(first).to_have_text(re.compile(r"^smollm2-135m · .* tok/s"))
            num_prompt = number(first.inner_text(), "computed")  # nothing was there to reuse
            num_reply = number(first.inner_text(), "tokens")
            chat.send("And of Italy?")
            expect(chat.replies.nth(1)).to_have_attribute("aria-busy", "false")
            # All of the first turn, and the system prompt that the model brings.
            second = chat.replies.nth(1).locator(".cost").inner_text()
            # The model never read the last token of its own reply.
            assert number(second, "reused") == num_prompt + num_reply - 1
            assert number(second, "computed") < 20
            panel = page.get_by_role("complementary", name="Cache")
            saved = re.compile(r"^saved [1-9][\d.]* m?s( · \d+ tokens? guessed)?$")
            expect(panel.locator(".panel-saved")).to_have_text(saved)
            panel.locator("canvas").press("Home")
            expect(panel.locator(".note-text")).to_contain_text("You are a helpful")
        finally:
            page.evaluate("fetch(`/paged-chat/chats/${pagedChat.chatId}/delete`, { method: 'POST' })")
