"""Watchers: how a screen follows what goes on, at its own pace, from any thread or event loop."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Callable, Hashable, Iterator
from types import TracebackType
from typing import Generic, TypeVar

PACE_S = 0.05

Event = TypeVar("Event")


class Watcher(Generic[Event]):
    """Events for one reader; closing it ends nothing but the watching.

    A slow reader misses no last state: of several updates of one reply, or several notices of one kind, only the
    newest waits for it. Updates of a growing reply come at most 20 times a second, its end comes at once.

    Read it in one of three ways:

        for event in watcher: ...              # blocks; ends after `close`
        async for event in watcher: ...        # on an event loop; ends after `close`
        event = watcher.get(timeout=0.1)       # None if nothing came in time, or it is closed

    It is a context manager, plain and async; leaving the block closes it.
    """

    # What waits is not an event but how to read it: whoever writes says only that there is news, which costs the
    # engine's thread next to nothing, and the reader builds one event of all that came since.

    def __init__(self) -> None:
        self._news: dict[Hashable, Callable[[], Event | None]] = {}  # by subject, oldest first
        self._due_at: dict[Hashable, float] = {}  # time.monotonic() before which a paced subject isn't told again
        self._at_once: set[Hashable] = set()
        self._has_ended = False
        self._changed = threading.Condition()
        self._sleeper: tuple[asyncio.AbstractEventLoop, asyncio.Future[None]] | None = None

    # For the reader

    @property
    def is_closed(self) -> bool:
        """Whether nothing more will come."""
        with self._changed:
            return self._has_ended and not self._news

    def get(self, timeout: float | None = None) -> Event | None:
        """The next event; waits for at most `timeout` seconds, without end if it is None."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            with self._changed:
                while (read := self._take()) is None:
                    due_at = self._next_due_at(deadline)
                    remaining = None if due_at is None else due_at - time.monotonic()
                    if (self._has_ended and not self._news) or (deadline is not None and time.monotonic() >= deadline):
                        return None
                    self._changed.wait(remaining)
            # Outside of the lock: reading takes the subject's own lock, and the subject calls `tell` while it holds it.
            if (event := read()) is not None:
                return event

    async def get_async(self) -> Event | None:
        """The next event; None once it is closed."""
        loop = asyncio.get_running_loop()
        while True:
            with self._changed:
                read = self._take()
                if read is None:
                    if self._has_ended and not self._news:
                        return None
                    due_at = self._next_due_at(None)
                    awake: asyncio.Future[None] = loop.create_future()
                    self._sleeper = (loop, awake)
            if read is None:
                await asyncio.wait([awake], timeout=None if due_at is None else max(0.0, due_at - time.monotonic()))
            elif (event := read()) is not None:
                return event

    def close(self) -> None:
        """Wakes whoever waits; safe from any thread, and twice."""
        with self._changed:
            self._news.clear()
        self.end()

    def __iter__(self) -> Iterator[Event]:
        while (event := self.get()) is not None:
            yield event

    async def __aiter__(self) -> AsyncIterator[Event]:
        while (event := await self.get_async()) is not None:
            yield event

    def __enter__(self) -> Watcher[Event]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Watcher[Event]:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # For the service

    def tell(self, subject: Hashable, read: Callable[[], Event | None], *, paced: bool = False) -> None:
        """There is news of a subject; `read` makes an event of it when the reader comes, or None if it is known.

        paced: it can wait until its subject was last told 50 ms ago.
        """
        with self._changed:
            if self._has_ended:
                return
            if not paced:
                self._at_once.add(subject)
            is_awaited = paced and subject in self._news
            self._news[subject] = read
            if not is_awaited:  # otherwise the reader is awake, or wakes when it is due
                self._wake()

    def end(self) -> None:
        """Nothing more will be told; what waits can still be read."""
        with self._changed:
            self._has_ended = True
            self._wake()

    def _wake(self) -> None:
        self._changed.notify_all()
        sleeper, self._sleeper = self._sleeper, None
        if sleeper is not None:
            loop, awake = sleeper
            with contextlib.suppress(RuntimeError):  # the reader's loop has ended
                loop.call_soon_threadsafe(_set, awake)

    def _take(self) -> Callable[[], Event | None] | None:
        """The news that is due and has waited longest."""
        now = time.monotonic()
        for subject in self._news:
            if subject in self._at_once or self._due_at.get(subject, now) <= now:
                self._at_once.discard(subject)
                self._due_at[subject] = now + PACE_S
                return self._news.pop(subject)
        return None

    def _next_due_at(self, deadline: float | None) -> float | None:
        moments = [self._due_at[subject] for subject in self._news]
        return min([*moments, deadline] if deadline is not None else moments, default=None)


def _set(awake: asyncio.Future[None]) -> None:
    if not awake.done():
        awake.set_result(None)
