"""What an open page costs the model: tokens a second beside those of a program that only counts them.

    python tests/benchmarks/page_decode.py [--rounds 6] [--tokens 1500]

The default model writes the same reply again and again, in turns: for `bench`, whose listener does nothing; for a chat
that nobody looks at; for one in an open page without its panel, with it, and with it in a browser on another machine:
a program that hears all that a page hears and draws nothing, so that what is left is the server's part. The browser is
plain Chromium without a GPU, driven by nobody, on the same processor as the model; the reply begins when it has come to
rest. The figure is the engine's own, of tokens after the first. Linux only.
"""

import argparse
import contextlib
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "support"))

from chat_page import BROWSER, FLAGS, free_port
from paged_chat.app.api.accounts import Accounts
from paged_chat.app.chats import Chat, Message
from paged_chat.app.imports import import_engine, import_page
from paged_chat.app.service.chat_service import ChatService
from paged_chat.app.store.store import Store
from paged_chat.app.web.server import WebServer
from paged_chat.engine.request import RequestStats, SamplingParams, TokenDelta

QUESTION = "Write a long story about a lighthouse keeper. Use Markdown: headings, lists, **bold** words."
WINDOWS = {"a page": "1100,900", "a page with its panel": "1400,900"}  # pixels; the wider one shows the panel
ELSEWHERE = "a page with its panel elsewhere"
# A browser that has just started goes on starting for seconds, some with half a core: that is not what a page costs.
MOST_AT_REST = 0.05  # of a core, over a second
LONGEST_START_S = 60
# Hears both lines of a page, as the browser would: arguments are the server's address without its scheme, and the chat.
LISTENER = """
import json, sys, threading
from websockets.sync.client import connect
address, chat_id = sys.argv[1:]
def hear(path, *requests):
    with connect(f"ws://{address}/paged-chat/{path}", max_size=None) as line:
        for request in requests:
            line.send(json.dumps(request))
        for news in line:
            pass
threading.Thread(target=hear, args=["panel"], daemon=True).start()
hear("live", {"kind": "open", "chat_id": chat_id})
"""


class Desk:
    """The service with the page, and one chat with a question in it."""

    def __init__(self, service: ChatService, server: WebServer, num_tokens: int) -> None:
        self.service = service
        self.server = server
        self.params = SamplingParams(temperature=0.0, max_tokens=num_tokens, ignore_eos=True)
        self.chat: Chat = service.create_chat(sampling=self.params)
        question = service.send(self.chat.id, QUESTION).user_message
        assert question is not None
        self.question: Message = question
        self.wait()

    def bench(self) -> float:
        """The same prompt, given to the engine itself."""
        ended = threading.Event()
        stats: list[RequestStats] = []

        def listen(delta: TokenDelta) -> None:
            if delta.stats is not None:
                stats.append(delta.stats)
                ended.set()

        loaded = self.service._host.loaded.result()
        path = self.service.tree(self.chat.id).path(self.question.id)
        prompt = loaded.transcript.preview(None, path).token_ids
        loaded.served.submit(prompt, replace(self.params, seed=0), listen).result()
        ended.wait()
        return stats[0].decode_tokens_per_s

    def reply(self) -> float:
        [reply] = self.service.retry(self.chat.id, self.question.id).replies
        self.wait()
        cost = self.service.message(self.chat.id, reply.id).cost
        assert cost is not None
        assert cost.tokens_per_s is not None
        return cost.tokens_per_s

    def wait(self) -> None:
        while self.service.running_chat_ids():
            time.sleep(0.1)

    @contextmanager
    def page(self, window: str) -> Iterator[None]:
        """The chat, open in a browser; until it has stood for a moment."""
        with tempfile.TemporaryDirectory() as profile:
            command = [BROWSER, *FLAGS, f"--user-data-dir={profile}", f"--window-size={window}"]
            command += ["--remote-debugging-port=0", f"{self.server.url}/?chat={self.chat.id}"]
            with self._watched_by(command, has_panel=window == WINDOWS["a page with its panel"]):
                yield

    def page_elsewhere(self) -> AbstractContextManager[None]:
        command = [sys.executable, "-c", LISTENER, self.server.url.removeprefix("http://"), self.chat.id]
        return self._watched_by(command, has_panel=True)

    @contextmanager
    def _watched_by(self, command: list[str], *, has_panel: bool) -> Iterator[None]:
        source = self.server._page.app.state.pool_source
        watchers = self.service._watchers
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True)
        try:
            while not watchers._watchers_of(self.chat.id):
                time.sleep(0.05)
            wait_for_rest(process.pid)
            assert bool(source._changes) == has_panel
            yield
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            while watchers._watchers_of(self.chat.id):
                time.sleep(0.05)


def wait_for_rest(session_id: int) -> None:
    """Until all programs of a session together have used next to nothing of a core for a second."""
    used_s = processor_s(session_id)
    for _ in range(LONGEST_START_S):
        time.sleep(1.0)
        before_s, used_s = used_s, processor_s(session_id)
        if used_s - before_s < MOST_AT_REST:
            return
    raise TimeoutError(
        f"after {LONGEST_START_S} s a page where nothing happens still takes {used_s - before_s:.2f} cores"
    )


def processor_s(session_id: int) -> float:
    """Seconds of a core that the threads of a session's living programs have used (man 5 proc_pid_stat)."""
    total_ns = 0
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it ends as we look
            if os.getsid(int(process.name)) == session_id:
                total_ns += sum(int(path.read_text().split()[0]) for path in process.glob("task/*/schedstat"))
    return total_ns / 1e9


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--tokens", type=int, default=1500)
    args = parser.parse_args()
    import_engine()
    import_page()  # as the command does: Python's collector never looks at what they bring
    speeds: dict[str, list[float]] = {name: [] for name in ("bench", "a chat", *WINDOWS, ELSEWHERE)}
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        Store(Path(folder) / "chats.db") as store,
        ChatService(store) as service,
    ):
        server = WebServer(service, "127.0.0.1", free_port(), Accounts({}), token="secret")
        desk = Desk(service, server, args.tokens)
        for number in range(args.rounds):
            for name in list(speeds)[:: -1 if number % 2 else 1]:
                if name == "bench":
                    speeds[name].append(desk.bench())
                elif name == "a chat":
                    speeds[name].append(desk.reply())
                elif name == ELSEWHERE:
                    with desk.page_elsewhere():
                        speeds[name].append(desk.reply())
                else:
                    with desk.page(WINDOWS[name]):
                        speeds[name].append(desk.reply())
        server.close()
    for name, values in speeds.items():
        shares = [value / bench for value, bench in zip(values, speeds["bench"], strict=True)]
        print(
            f"{name}: {statistics.median(values):.1f} tokens a second ({min(values):.1f} to {max(values):.1f}), "
            f"{100 * statistics.median(shares):.0f} % of bench",
            flush=True,
        )


if __name__ == "__main__":
    main()
