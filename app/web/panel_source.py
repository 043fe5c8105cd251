"""One reader of the pool for all tabs that show it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from paged_chat.engine.errors import PagedChatError

from ..cache_view.block_view import LogLine, PoolFollower, PoolReading, PoolView, read_pool
from ..engine_query import engine_query
from ..service.chat_service import ChatService

if TYPE_CHECKING:
    from paged_chat.engine import Engine

logger = logging.getLogger(__name__)

BUSY_S = 0.2  # between two looks while something happens
IDLE_S = 0.25
WHOLE_S = 1.0  # the whole pool is read so often at least: an event may have been lost
RETRY_S = 1.0  # while there is no engine
# Reading takes the engine at most this share of its time: a pool of hundreds of thousands of blocks is read less often.
MAX_SHARE = 0.01


@dataclass(frozen=True, slots=True)
class PoolLook:
    """What one question to the engine brought: nothing where nothing has happened; and what it took of its time."""

    reading: PoolReading | None
    took_s: float


class PoolSource:
    """Looks at the pool while somebody watches, and at no other time; belongs to one event loop.

    Always: at most one question is in the engine's inbox, however many watch.
            `view` is the newest picture, None while there is no engine.
    """

    def __init__(self, service: ChatService) -> None:
        self._service = service
        self._follower = PoolFollower()
        self._changes: set[asyncio.Event] = set()  # one for each watcher
        self._following: asyncio.Task[None] | None = None
        self._read_at = float("-inf")
        self.view: PoolView | None = None

    @property
    def log(self) -> deque[LogLine]:
        """The newest lines, oldest first."""
        return self._follower.log

    @property
    def num_lines(self) -> int:
        """Written into the log so far."""
        return self._follower.num_lines

    @contextmanager
    def watch(self) -> Iterator[asyncio.Event]:
        """Gives an event that is set whenever the picture or the log has changed; whoever waits for it clears it."""
        changed = asyncio.Event()
        self._changes.add(changed)
        if self._following is None:
            self._following = asyncio.create_task(self._follow())
        try:
            yield changed
        finally:
            self._changes.remove(changed)
            if not self._changes:
                self._following.cancel()
                self._following = None

    async def _follow(self) -> None:
        while True:
            try:
                look = await self._look()
            except Exception as error:
                if not isinstance(error, PagedChatError):  # else it failed to load, or ended
                    logger.exception("the pool could not be read; it is tried again")
                self._show(None)
                await asyncio.sleep(RETRY_S)
                continue
            if look.reading is not None:
                self._read_at = time.monotonic()
                num_lines_before = self.num_lines
                view = self._follower.take(look.reading, time.monotonic())
                self._show(view, has_lines=self.num_lines != num_lines_before)
            is_busy = look.reading is not None and (look.reading.events or self._follower.is_fading)
            await asyncio.sleep(max(BUSY_S if is_busy else IDLE_S, look.took_s / MAX_SHARE))

    async def _look(self) -> PoolLook:
        is_due = self._follower.is_fading or self.view is None or time.monotonic() - self._read_at > WHOLE_S
        question = look_at_pool.ask(self._follower.next_event, is_due)
        return await asyncio.wrap_future(self._service.ask_engine(question))

    def _show(self, view: PoolView | None, *, has_lines: bool = False) -> None:
        if view != self.view or has_lines:
            self.view = view
            for changed in self._changes:
                changed.set()


@engine_query
def look_at_pool(engine: Engine, since: int, is_due: bool) -> PoolLook:
    """On the engine's thread."""
    began = time.perf_counter()
    reading = read_pool(engine, since) if is_due or engine.events(since) else None
    return PoolLook(reading, time.perf_counter() - began)
