"""A chat service over a real store and a fake engine, with what tests ask of it most."""

import time
from collections.abc import Callable
from pathlib import Path

from fake_engine import FakeEngine
from paged_chat.app.chats import Chat, Message
from paged_chat.app.service.chat_events import ChatEvent, ReplyUpdate
from paged_chat.app.service.chat_service import ChatService
from paged_chat.app.service.watch import Watcher
from paged_chat.app.store.store import Store
from paged_chat.engine.config import EngineConfig
from paged_chat.engine.request import SamplingParams
from patience import PATIENCE_S

MODEL = "fake-1b"


class ChatDesk:
    """`service` writes into `path` what `fake` says."""

    def __init__(self, path: Path, fake: FakeEngine) -> None:
        self.path = path
        self.fake = fake
        self.store = Store(path)
        self.service = ChatService(
            self.store, fake.open, config=EngineConfig(model=MODEL), default_sampling=SamplingParams(max_tokens=None)
        )

    def close(self) -> None:
        self.service.close()
        self.store.close()
        self.fake.close()

    def ask(self, chat: Chat, text: str, *replies: str) -> tuple[Message, ...]:
        """Sends a message, has it answered with these replies, and gives them as they are stored."""
        self.fake.enqueue(*replies)
        turn = self.service.send(chat.id, text, n=len(replies))
        self.finish(chat)
        return tuple(self.stored(reply) for reply in turn.replies)

    def finish(self, chat: Chat) -> list[ChatEvent]:
        """Waits until no reply of the chat is running; gives what a watcher was told. What it hears of is stored."""
        with self.service.watch(chat.id, until_idle=True) as watcher:
            return events_of(watcher)

    def let(self, chat: Chat, num_tokens: int) -> ReplyUpdate:
        """Computes so many steps of the held engine; waits until each running reply has so many tokens more."""
        before = {message.id: len(message.token_ids or ()) for message in self.service.running(chat.id)}
        self.fake.let(num_tokens)
        with self.service.watch(chat.id) as watcher:
            waiting = dict(before)
            while waiting:
                update = next_update(watcher)
                if update.num_generated_tokens >= before[update.message_id] + num_tokens:
                    waiting.pop(update.message_id, None)
        return update

    def stored(self, message: Message) -> Message:
        return self.store.tree(message.chat_id)[message.id]

    def texts(self, chat: Chat) -> list[str]:
        """What the chat shows, from the first message to the last."""
        leaf_id = self.service.chat(chat.id).active_leaf_id
        return [message.text for message in self.service.tree(chat.id).path(leaf_id)]


def events_of(watcher: Watcher[ChatEvent]) -> list[ChatEvent]:
    """All until it ends."""
    deadline = time.monotonic() + PATIENCE_S
    events = []
    while (event := watcher.get(timeout=max(0.0, deadline - time.monotonic()))) is not None:
        events.append(event)
    assert watcher.is_closed, "the watcher didn't end"
    return events


def next_update(watcher: Watcher[ChatEvent]) -> ReplyUpdate:
    """The next that is about a reply."""
    deadline = time.monotonic() + PATIENCE_S
    while (event := watcher.get(timeout=max(0.0, deadline - time.monotonic()))) is not None:
        if isinstance(event, ReplyUpdate):
            return event
    raise AssertionError("nothing more was told of a reply")


def updates_of(events: list[ChatEvent]) -> list[ReplyUpdate]:
    return [event for event in events if isinstance(event, ReplyUpdate)]


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.002)
