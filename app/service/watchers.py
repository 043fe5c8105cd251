"""Who watches what: tells every watcher what concerns it, and looks for what other processes change."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from weakref import WeakSet

from paged_chat.engine.errors import PagedChatError

from ..errors import ChatNotFound
from .chat_events import AppEvent, ChatChanged, ChatEvent, ChatsChanged, EngineStatus, ReplyUpdate
from .running_reply import RunningReply
from .stores import Stores
from .watch import Watcher

LOOK_INTERVAL_S = 1.0


class Watchers:
    """Every watcher of chats and of the application; safe from any thread.

    One that nobody holds any more is forgotten, closed or not.
    """

    def __init__(self, stores: Stores, replies: Callable[[], list[RunningReply]]) -> None:
        """`replies` gives those whose end isn't stored, of all chats."""
        self._stores = stores
        self._replies = replies
        self._lock = threading.Lock()
        self._of_chats: dict[str, WeakSet[_ChatWatcher]] = {}
        self._of_app: WeakSet[Watcher[AppEvent]] = WeakSet()
        self._versions: dict[str, int] = {}  # of watched chats, when they were last told of
        self._is_closed = threading.Event()
        self._list_version: tuple[int, int] | None = None
        self._lookout: threading.Thread | None = None  # begins with the first watcher

    def watch_chat(self, chat_id: str, *, until_idle: bool) -> Watcher[ChatEvent]:
        watcher = _ChatWatcher(until_idle)
        version = self._find_version(chat_id)
        watcher.tell("chat", lambda: ChatChanged(chat_id, is_deleted=version is None))
        with self._lock:
            self._of_chats.setdefault(chat_id, WeakSet()).add(watcher)
            if version is not None:
                self._versions.setdefault(chat_id, version)
            self._begin_to_look()
        for reply in self._replies_in(chat_id):
            watcher.tell_of(reply)
        self._end_idle(chat_id, [watcher])
        if self._is_closed.is_set():
            watcher.end()
        return watcher

    def watch_app(self, read_status: Callable[[], EngineStatus]) -> Watcher[AppEvent]:
        watcher: Watcher[AppEvent] = Watcher()
        with self._lock:
            self._of_app.add(watcher)
            self._begin_to_look()
        self._look_at_list()
        watcher.tell("engine", read_status)
        if self._is_closed.is_set():
            watcher.end()
        return watcher

    def reply_changed(self, reply: RunningReply) -> None:
        """Costs little, for it is called with every token, on the engine's thread."""
        watchers = self._watchers_of(reply.chat_id)
        for watcher in watchers:
            watcher.tell_of(reply)
        if reply.is_settled:
            self._end_idle(reply.chat_id, watchers)

    def chat_changed(self, chat_id: str) -> None:
        watchers = self._watchers_of(chat_id)
        if not watchers:
            return
        version = self._find_version(chat_id)
        with self._lock:
            if version is None:
                self._versions.pop(chat_id, None)
            else:
                self._versions[chat_id] = version
        for watcher in watchers:
            watcher.tell("chat", lambda: ChatChanged(chat_id, is_deleted=version is None))

    def chats_changed(self) -> None:
        for watcher in self._watchers_of_app():
            watcher.tell("chats", ChatsChanged)

    def engine_changed(self, status: EngineStatus) -> None:
        for watcher in self._watchers_of_app():
            # Progress comes with every megabyte of a download.
            watcher.tell("engine", lambda: status, paced=status.phase == "loading" or status.fetch is not None)

    def close(self) -> None:
        """Ends all watching; what was told can still be read."""
        self._is_closed.set()
        with self._lock:
            watchers: list[Watcher[ChatEvent] | Watcher[AppEvent]] = [*self._of_app]
            for of_chat in self._of_chats.values():
                watchers += of_chat
        for watcher in watchers:
            watcher.end()

    def _watchers_of(self, chat_id: str) -> list[_ChatWatcher]:
        with self._lock:
            return list(self._of_chats.get(chat_id, ()))

    def _watchers_of_app(self) -> list[Watcher[AppEvent]]:
        with self._lock:
            return list(self._of_app)

    def _end_idle(self, chat_id: str, watchers: Iterable[_ChatWatcher]) -> None:
        waiting = [watcher for watcher in watchers if watcher.until_idle]
        if waiting and all(reply.is_settled for reply in self._replies_in(chat_id)):
            for watcher in waiting:
                watcher.end()

    def _replies_in(self, chat_id: str) -> list[RunningReply]:
        return [reply for reply in self._replies() if reply.chat_id == chat_id]

    def _find_version(self, chat_id: str) -> int | None:
        """None for a chat that is deleted; the last one known where the store can't be read."""
        try:
            return self._stores.of(chat_id).version(chat_id)
        except ChatNotFound:
            return None
        except PagedChatError:
            return self._versions.get(chat_id, 0)

    # What other processes change

    def _begin_to_look(self) -> None:
        if self._lookout is None:
            self._lookout = threading.Thread(target=self._look_around, name="paged-chat lookout", daemon=True)
            self._lookout.start()

    def _look_around(self) -> None:
        while not self._is_closed.wait(LOOK_INTERVAL_S):
            with self._lock:
                self._forget_closed()
                known = dict(self._versions)
            # A reply that is written here changes its chat all the time, and is told of at its end.
            written_here = {reply.chat_id for reply in self._replies()}
            for chat_id, version in known.items():
                if chat_id not in written_here and self._find_version(chat_id) != version:
                    self.chat_changed(chat_id)
            self._look_at_list()

    def _look_at_list(self) -> None:
        if not self._watchers_of_app():
            self._list_version = None
            return
        written_here = {reply.chat_id for reply in self._replies()}
        before = self._list_version
        with contextlib.suppress(PagedChatError):  # a database that can't be read now is looked at again
            self._list_version = self._stores.on_disk.list_version(written_here)
        if before is not None and before != self._list_version:
            self.chats_changed()

    def _forget_closed(self) -> None:
        for chat_id, watchers in list(self._of_chats.items()):
            for watcher in [watcher for watcher in watchers if watcher.is_closed]:
                watchers.discard(watcher)
            if not watchers:
                del self._of_chats[chat_id]
                self._versions.pop(chat_id, None)
        for watcher_of_app in [watcher for watcher in self._of_app if watcher.is_closed]:
            self._of_app.discard(watcher_of_app)


class _ChatWatcher(Watcher[ChatEvent]):
    """Knows what its reader has seen of each reply."""

    def __init__(self, until_idle: bool) -> None:
        super().__init__()
        self.until_idle = until_idle
        self._seen: dict[RunningReply, ReplyUpdate] = {}

    def tell_of(self, reply: RunningReply) -> None:
        self.tell(reply, lambda: self._read(reply), paced=not reply.is_settled)

    def _read(self, reply: RunningReply) -> ReplyUpdate | None:
        seen, update = self._seen.get(reply), reply.update()
        if update == seen:
            return None
        self._seen[reply] = update
        if update.has_ended:
            del self._seen[reply]  # or a tab that stays open for days would keep every reply
        if seen is not None and update.text.startswith(seen.text):
            return replace(update, new_text=update.text[len(seen.text) :])
        return update
