"""Chats at random for many minutes: does memory stay flat, is any block or message lost, is any token wrong?

    python tests/benchmarks/soak.py [--minutes 20] [--clients 4] [--life-s 75] [--seed 1] [--model smollm2-135m]

Several clients write, branch, edit, stop, continue, delete and search in one store, over the real model in float32 and
a pool that is too small for them. Every `life-s` seconds the service is closed in the middle of it and opened anew.
After each life every invariant of the pool is checked, that nothing is held, that every message is as it was sent and
every reply ended; and what the engine said to each request is computed again by an engine without a cache.

A reply that parts from the other engine's where the two likeliest tokens are within TIE is counted as a tie: sums of
float32 depend on what stands beside them. Prints a line a minute, and at the end one of JSON. Exits with 1 for a fault.
"""

import argparse
import contextlib
import json
import os
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from paged_chat.app.chats import Chat
from paged_chat.app.errors import PagedChatError
from paged_chat.app.service.chat_service import ChatService
from paged_chat.app.store.store import Store
from paged_chat.engine import AsyncEngine, Engine, EngineConfig, SamplingParams, TokenDelta
from paged_chat.engine.async_engine import Listener
from paged_chat.engine.errors import EngineClosed
from paged_chat.engine.metrics import PoolSnapshot
from paged_chat.engine.progress import OnProgress

WORDS = Path(__file__).read_text(encoding="utf-8").split()
SYSTEM_PROMPTS = ("", "You are a helpful assistant.", "Answer in one short sentence. " * 12)
MAX_MESSAGES = 14  # of a path, then a client begins another chat
TIE = 1e-3  # natural logarithm of the two tokens' ratio
MIB = 2**20


@dataclass
class Asked:
    """What the engine was asked, and what it said."""

    prompt: list[int]
    params: SamplingParams
    reply_start: list[int]
    said: list[list[int]]  # by sample

    def add(self, delta: TokenDelta) -> None:
        self.said[delta.sample] += delta.token_ids


class RecordingEngine(AsyncEngine):
    """Keeps all that went through it."""

    def __init__(self, config: EngineConfig, on_progress: OnProgress) -> None:
        self.asked: list[Asked] = []
        self.left: Left | None = None
        super().__init__(config, on_progress)

    def submit(
        self,
        prompt_token_ids: Sequence[int],
        params: SamplingParams,
        listener: Listener,
        *,
        salt: str = "",
        reply_start: Sequence[int] = (),
    ) -> "Future[str]":
        said: list[list[int]] = [[] for _ in range(params.n)]
        asked = Asked(list(prompt_token_ids), params, list(reply_start), said)
        self.asked.append(asked)

        def listen(delta: TokenDelta) -> None:
            asked.add(delta)
            listener(delta)

        return super().submit(prompt_token_ids, params, listen, salt=salt, reply_start=reply_start)

    def close(self) -> None:
        """Nobody asks any more by now: what still runs is ended, and then looked at what it leaves."""
        with contextlib.suppress(EngineClosed):  # closed before
            self.left = self.call(_what_is_left).result()
        super().close()


@dataclass(frozen=True)
class Left:
    """Of an engine whose requests have all ended."""

    snapshot: PoolSnapshot
    fault: str | None  # of its invariants


def _what_is_left(engine: Engine) -> Left:
    try:
        engine.check_integrity()
        core = engine._open_core()
        for request in list(core._requests):
            engine.abort(request.request_id)
        engine.check_integrity()
        return Left(engine.snapshot(), None)
    except AssertionError as error:
        return Left(engine.snapshot(), f"an invariant is broken: {error}")


class Client:
    """One person, who does things at random in chats of their own until told to stop."""

    def __init__(self, service: ChatService, chance: random.Random, user: str) -> None:
        self._service = service
        self._chance = chance
        self._user = user
        self.sent: dict[int, tuple[str, str]] = {}  # message id: its chat and text
        self.num_refused: Counter[str] = Counter()

    def live(self, is_over: threading.Event) -> None:
        deeds: list[Callable[[Chat], None]] = [self._send] * 6
        deeds += [self._retry, self._edit, self._continue, self._fork, self._delete, self._search, self._branch]
        while not is_over.is_set():
            chats = self._service.chats(user=self._user)
            if not chats or self._chance.random() < 0.12:
                chat = self._service.create_chat(
                    user=self._user, system_prompt=self._chance.choice(SYSTEM_PROMPTS), sampling=self._sampling()
                )
            else:
                chat = self._chance.choice(chats[:4])
            try:
                self._chance.choice(deeds)(chat)
                self._wait(chat, is_over)
            except PagedChatError as error:
                self.num_refused[type(error).__name__] += 1

    def _sampling(self) -> SamplingParams:
        if self._chance.random() < 0.5:
            return SamplingParams(max_tokens=self._chance.randint(4, 40))
        return SamplingParams(
            temperature=0.8, top_p=0.95, seed=self._chance.randrange(10**6), max_tokens=self._chance.randint(4, 40)
        )

    def _text(self) -> str:
        start = self._chance.randrange(len(WORDS) - 130)
        return " ".join(WORDS[start : start + self._chance.choice((3, 8, 20, 120))])

    def _wait(self, chat: Chat, is_over: threading.Event) -> None:
        """Looks on until the chat is idle, or for a while, and then stops it or lets it go on."""
        patience_s = self._chance.choice((0.1, 1.0, 5.0, 60.0))
        deadline = time.monotonic() + patience_s
        with self._service.watch(chat.id, until_idle=True) as watcher:
            while (left := deadline - time.monotonic()) > 0 and not is_over.is_set():
                if watcher.get(min(left, 0.5)) is None and watcher.is_closed:
                    return
        if self._chance.random() < 0.5:
            self._service.stop(chat.id)

    def _send(self, chat: Chat) -> None:
        path = self._service.tree(chat.id).path(chat.active_leaf_id)
        if len(path) >= MAX_MESSAGES:
            return
        text = self._text()
        turn = self._service.send(chat.id, text, n=self._chance.choice((1, 1, 1, 3)), sampling=self._sampling())
        self._remember(turn.user_message, chat, text)

    def _edit(self, chat: Chat) -> None:
        text = self._text()
        turn = self._service.edit(chat.id, self._any(chat, "user"), text, n=1, sampling=self._sampling())
        self._remember(turn.user_message, chat, text)

    def _remember(self, message: object, chat: Chat, text: str) -> None:
        assert message is not None
        self.sent[message.id] = (chat.id, text)  # type: ignore[attr-defined]

    def _any(self, chat: Chat, role: str) -> int:
        """The id of a message; of none, where there is none, so that the deed is refused."""
        ids = [message.id for message in self._service.tree(chat.id) if message.role == role]
        return self._chance.choice(ids) if ids else -1

    def _retry(self, chat: Chat) -> None:
        self._service.retry(chat.id, self._any(chat, "assistant"), n=self._chance.choice((1, 2)))

    def _continue(self, chat: Chat) -> None:
        self._service.continue_reply(chat.id, self._any(chat, "assistant"))

    def _fork(self, chat: Chat) -> None:
        self._service.fork(chat.id, self._any(chat, "assistant"))

    def _branch(self, chat: Chat) -> None:
        message = self._service.message(chat.id, self._any(chat, "assistant"))
        if message.token_ids:
            place = self._chance.randrange(len(message.token_ids))
            self._service.branch_at_token(chat.id, message.id, place, message.token_ids[place])

    def _delete(self, chat: Chat) -> None:
        if self._chance.random() < 0.5:
            self._service.delete_chat(chat.id)
            self._service.restore_chat(chat.id)
        else:
            message_id = self._any(chat, "user")
            self._service.delete_message(chat.id, message_id)
            self._service.restore_message(chat.id, message_id)

    def _search(self, chat: Chat) -> None:
        self._service.search(self._chance.choice(WORDS), user=self._user)


class Soak:
    """Lives of a service over one store, and what was found wrong in them."""

    def __init__(self, path: Path, config: EngineConfig, num_clients: int, seed: int) -> None:
        self._path = path
        self._config = config
        self._num_clients = num_clients
        self._chance = random.Random(seed)
        self._uncached = Engine(replace(config, prefix_caching=False, speculation="off", num_blocks=260))
        self._sent: dict[int, tuple[str, str]] = {}
        self.counts: Counter[str] = Counter(mismatches=0, ties=0)
        self.refused: Counter[str] = Counter()
        self.faults: list[str] = []
        self.rss_mib: list[tuple[float, float]] = []  # minutes, MiB, after each life

    def live(self, seconds: float) -> None:
        """One life of the service: clients at work, then a close in the middle of it."""
        engines: list[RecordingEngine] = []

        def open_engine(config: EngineConfig, on_progress: OnProgress) -> RecordingEngine:
            engines.append(RecordingEngine(config, on_progress))
            return engines[-1]

        is_over = threading.Event()
        with Store(self._path) as store:
            self._check_store(store)
            with ChatService(store, open_engine, config=self._config) as service:
                clients = [
                    Client(service, random.Random(self._chance.random()), f"client {number}")
                    for number in range(self._num_clients)
                ]
                with ThreadPoolExecutor(self._num_clients) as people:
                    lives = [people.submit(client.live, is_over) for client in clients]
                    time.sleep(seconds)
                    is_over.set()
                    for life in lives:
                        life.result()
        [engine] = engines
        engine.close()  # the service doesn't wait for its end for long
        assert engine.left is not None
        self._count(engine.left)
        for client in clients:
            self._sent |= client.sent
            self.refused += client.num_refused
        self.counts["lives"] += 1
        self._compare(engine.asked)

    def finish(self) -> None:
        with Store(self._path) as store:
            self._check_store(store)
        self._uncached.close()

    def measure(self, started: float) -> None:
        resident_pages = int(Path("/proc/self/statm").read_text().split()[1])
        self.rss_mib.append(((time.monotonic() - started) / 60, resident_pages * os.sysconf("SC_PAGE_SIZE") / MIB))

    def _count(self, left: Left) -> None:
        snapshot = left.snapshot
        if snapshot.num_referenced:
            self.faults.append(f"{snapshot.num_referenced} blocks are held after the last request")
        if snapshot.num_free + snapshot.num_cached != snapshot.num_blocks - 1:
            self.faults.append(f"blocks are missing: {snapshot.num_free} free, {snapshot.num_cached} cached")
        if left.fault is not None:
            self.faults.append(left.fault)
        self.counts["hits"] += snapshot.hits
        self.counts["misses"] += snapshot.misses
        self.counts["evictions"] += snapshot.evictions
        self.counts["preemptions"] += snapshot.preemptions
        self.counts["copies"] += snapshot.copies

    def _check_store(self, store: Store) -> None:
        """Every message that was sent is there, and no reply is left as if it were being written."""
        trees = {}
        for message_id, (chat_id, text) in self._sent.items():
            if chat_id not in trees:
                trees[chat_id] = store.tree(chat_id)
            if message_id not in trees[chat_id] or trees[chat_id][message_id].text != text:
                self.faults.append(f"message {message_id} of chat {chat_id} is lost or changed")
        drafts = [message.id for tree in trees.values() for message in tree if message.status == "draft"]
        if drafts:
            self.faults.append(f"replies {drafts} are drafts after the service was closed")
        self.counts["messages"] = len(self._sent)

    def _compare(self, all_asked: Sequence[Asked]) -> None:
        """With what an engine says that caches nothing."""
        again: dict[str, Again] = {}
        for asked in all_asked:
            for sample, said in enumerate(asked.said):
                if len(said) > len(asked.reply_start):
                    seed = None if asked.params.seed is None else asked.params.seed + sample
                    own = replace(asked.params, n=1, seed=seed, max_tokens=len(said), logprobs=2)
                    request_id = self._uncached.submit(asked.prompt, own, reply_start=asked.reply_start)
                    again[request_id] = Again(asked, said)
        while self._uncached.has_unfinished:
            for delta in self._uncached.step():
                again[delta.request_id].expected += delta.token_ids
                again[delta.request_id].tops += [logprobs.top for logprobs in delta.logprobs]
        for each in again.values():
            self.counts["replies"] += 1
            self.counts["tokens"] += len(each.said) - len(each.asked.reply_start)
            if each.expected != each.said:
                self.counts["ties" if each.is_tie else "mismatches"] += 1
                if not each.is_tie:
                    self.faults.append(f"{each.said} instead of {each.expected}")


@dataclass
class Again:
    """A reply, and what the other engine says to the same prompt."""

    asked: Asked
    said: list[int]
    expected: list[int] = field(default_factory=list)
    tops: list[tuple[tuple[int, float], ...]] = field(default_factory=list)  # of each drawn token

    @property
    def is_tie(self) -> bool:
        """Whether the likeliest token was taken and was hardly likelier than the next, where the two part first."""
        places = [i for i, (a, b) in enumerate(zip(self.expected, self.said, strict=False)) if a != b]
        if not places or self.asked.params.temperature > 0:
            return False
        (_, first), (_, second) = self.tops[places[0] - len(self.asked.reply_start)]
        return first - second < TIE


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--life-s", type=float, default=75.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--model", default="smollm2-135m")
    options = parser.parse_args()
    config = EngineConfig(model=options.model, dtype="float32", weights="dense", num_blocks=260, max_num_seqs=12)
    with tempfile.TemporaryDirectory() as folder:
        soak = Soak(Path(folder) / "chats.db", config, options.clients, options.seed)
        started = time.monotonic()
        while time.monotonic() - started < options.minutes * 60:
            soak.live(options.life_s)
            soak.measure(started)
            minutes, rss = soak.rss_mib[-1]
            print(f"{minutes:5.1f} min  {rss:7.0f} MiB  {dict(soak.counts)}  {soak.faults[-3:]}", flush=True)
        soak.finish()
    figures = {
        "minutes": round((time.monotonic() - started) / 60, 1),
        "rss_mib": [round(rss) for _, rss in (soak.rss_mib[0], soak.rss_mib[len(soak.rss_mib) // 2], soak.rss_mib[-1])],
        **soak.counts,
        "refused": dict(soak.refused),
        "faults": soak.faults[:5],
    }
    print(json.dumps(figures))
    sys.exit(1 if soak.faults else 0)


if __name__ == "__main__":
    main()
