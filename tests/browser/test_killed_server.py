"""`paged-chat web` killed in mid-reply and started anew: the page comes back by itself, and nothing is lost."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import expect

from chat_page import ChatPage, context_of, free_port
from paged_chat.app.store.store import Store, default_path
from patience import PATIENCE_S

# A page in a process of its own, whose engine computes as many steps as it is told.
PROGRAM = """
import sys
sys.path[:0] = sys.argv[2:]
from fake_engine import FakeEngine
from paged_chat.app.api.accounts import Accounts
from paged_chat.app.service.chat_service import ChatService
from paged_chat.app.store.store import Store, default_path
from patience import PATIENCE_S
from paged_chat.app.web.server import WebServer

engine = FakeEngine()
engine.enqueue("Once upon a time")
engine.hold()
service = ChatService(Store(default_path()), engine.open)
WebServer(service, "127.0.0.1", int(sys.argv[1]), Accounts({}), token="secret")
print("serving", flush=True)
for line in sys.stdin:
    engine.let(int(line))
"""

Start = Callable[[], "subprocess.Popen[str]"]


@pytest.fixture
def start(home) -> Iterator[Start]:
    """`start()` serves the page, on the same port and home each time, until it is killed."""
    port = free_port()
    support = [path for path in sys.path if path.endswith("support")]
    processes: list[subprocess.Popen[str]] = []

    def start() -> "subprocess.Popen[str]":
        arguments = [sys.executable, "-P", "-c", PROGRAM, str(port), *support]
        process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        processes.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "serving\n"
        return process

    start.url = f"http://127.0.0.1:{port}"  # type: ignore[attr-defined]
    yield start
    for process in processes:
        process.kill()
        process.communicate()


def test_the_page_comes_back_with_the_draft_marked_stopped(browser, start, faults):
    faults.expected_errors += ["ERR_CONNECTION_REFUSED", "WebSocket connection", "ERR_CONNECTION_RESET"]
    process = start()
    with context_of(browser) as context:
        page = context.new_page()
        faults.watch(page)
        chat = ChatPage(page, start.url).open()
        chat.send("Tell me a story")
        expect(chat.questions).to_have_count(1)
        process.stdin.write("16\n")  # all tokens but the end
        process.stdin.flush()
        expect(chat.reply()).to_have_text("Once upon a time")
        chat.field.fill("What I write meanwhile")
        # Drafts are written to the disk twice a second.
        with Store(default_path()) as store:
            deadline = time.monotonic() + PATIENCE_S
            while not any(message.text == "Once upon a time" for message in store.tree(chat.chat_id)):
                assert time.monotonic() < deadline, "the draft wasn't saved"
                page.wait_for_timeout(50)
        process.send_signal(signal.SIGKILL)
        process.wait()
        expect(page.locator(".pc.is-cut-off")).to_have_count(1)
        start()
        expect(page.locator(".pc.is-cut-off")).to_have_count(0)
        expect(chat.replies.locator(".cost")).to_contain_text("stopped")
        expect(chat.reply()).to_have_text("Once upon a time")
        expect(chat.questions).to_contain_text("Tell me a story")
        expect(chat.field).to_have_value("What I write meanwhile")
        expect(chat.page.get_by_role("button", name="Send (Enter)")).to_be_visible()
        expect(chat.replies.get_by_role("button", name="Continue this reply")).to_have_count(1)
