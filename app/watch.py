"""Watchers: how a screen follows what goes on, at its own pace, from any thread or event loop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from types import TracebackType
from typing import Generic, TypeVar

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

    @property
    def is_closed(self) -> bool:
        """Whether nothing more will come."""
        raise NotImplementedError

    def get(self, timeout: float | None = None) -> Event | None:
        """The next event; waits for at most `timeout` seconds, without end if it is None."""
        raise NotImplementedError

    async def get_async(self) -> Event | None:
        """The next event; None once it is closed."""
        raise NotImplementedError

    def close(self) -> None:
        """Wakes whoever waits; safe from any thread, and twice."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[Event]:
        raise NotImplementedError

    def __aiter__(self) -> AsyncIterator[Event]:
        raise NotImplementedError

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
