"""The cache beside the conversation: the pool block by block, counters, a running log, the block under the cursor."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING

from rich.text import Text
from textual import on, work
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.events import Resize
from textual.widgets import Static
from textual.worker import Worker, WorkerState

from paged_chat.app.cache_view.block_note import BlockNote, read_block
from paged_chat.app.cache_view.block_view import BlockState, LogLine, PoolFollower, PoolView, read_pool
from paged_chat.app.counted import counted
from paged_chat.app.errors import PagedChatError

from ..messages import BlockPointed
from ..notices import show_error
from .pool_map import PoolMap
from .why_not_more import WhyNotMore

if TYPE_CHECKING:
    from paged_chat.app.service.chat_events import EngineStatus
    from paged_chat.app.service.chat_service import ChatService

BUSY_S = 0.2  # between two looks while something happens
IDLE_S = 1.0
ROOMY = 30  # lines, from which on there is space between what is told
NO_MODEL = "no model yet"
QUIET = "$text-muted"  # a dim one couldn't be read on either page
_KINDS = [f"{state.look.letter} {state}" for state in BlockState]
LEGEND = "\n".join("  ".join(f"{kind:<8}" for kind in line).rstrip() for line in (_KINDS[:3], _KINDS[3:]))


class CachePanel(Vertical):
    """Reads the pool only while it is shown, and never has two questions in the engine's inbox."""

    def __init__(self) -> None:
        super().__init__(id="cache")
        self.border_title = "Cache"
        self._follower = PoolFollower()
        self._pointed_id: int | None = None
        self._has_drawn = False  # what is shown now, of the model that is there now
        self._news = asyncio.Event()  # something is to be read that wasn't there, or wasn't shown, at the last look

    def compose(self) -> ComposeResult:
        yield PoolMap()
        yield Static(NO_MODEL, id="counters", markup=False)
        yield Static("", id="block", markup=False)
        yield Static("", id="log", markup=False)
        yield WhyNotMore()

    def attach(self, service: ChatService) -> None:
        """From now on there is a pool, or will be."""
        self._follow(service)

    def show_engine(self, status: EngineStatus) -> None:
        """A model that is there has a pool, even before it could be read for the first time."""
        counters = self.query_one("#counters", Static)
        if status.phase != "ready":
            counters.update(NO_MODEL)
            self._has_drawn = False
        elif counters.content == NO_MODEL:
            counters.update("reading the cache")
        self._news.set()

    def look_again(self) -> None:
        """Once it is shown: Textual doesn't always say that it is (no Show where the screen has scrolled before)."""
        self._news.set()

    def on_resize(self, event: Resize) -> None:
        self._arrange()

    def _arrange(self) -> None:
        self.set_class(self.size.height < ROOMY, "low")

    @work(exclusive=True, exit_on_error=False)
    async def _follow(self, service: ChatService) -> None:
        while True:
            if not self.display:
                self._has_drawn = False
                await self._pause(None)
                continue
            try:
                look = read_pool.ask(self._follower.next_event)
                reading = await asyncio.wrap_future(service.ask_engine(look))
            except PagedChatError:
                self.query_one("#counters", Static).update(NO_MODEL)
                self._has_drawn = False
                await self._pause(IDLE_S)
                continue
            was_fading = self._follower.is_fading
            view = self._follower.take(reading, time.monotonic())
            is_busy = bool(reading.events or was_fading)
            if is_busy or not self._has_drawn:
                self._draw(view)
                self._has_drawn = True
                if self._pointed_id is not None and self.query_one(PoolMap).has_focus:
                    await self._show_block(service, self._pointed_id)
            await self._pause(BUSY_S if is_busy else IDLE_S / 2)

    async def _pause(self, pause_s: float | None) -> None:
        """Until the next look, or until there is news; None is until there is news."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._news.wait(), pause_s)
        self._news.clear()

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        """A fault of ours in the background: told, for nobody waits for its result."""
        if event.state is WorkerState.ERROR and event.worker.error is not None:
            show_error(self, event.worker.error)

    @on(BlockPointed)
    def point_at(self, event: BlockPointed) -> None:
        event.stop()
        self._pointed_id = event.block_id
        service = getattr(self.screen, "service", None)
        if service is not None:
            self._ask_block(service, event.block_id)

    @work(group="block", exclusive=True, exit_on_error=False)
    async def _ask_block(self, service: ChatService, block_id: int) -> None:
        await self._show_block(service, block_id)

    async def _show_block(self, service: ChatService, block_id: int) -> None:
        try:
            note = await asyncio.wrap_future(service.ask_engine(read_block.ask(block_id)))
        except PagedChatError:
            return  # another model has a smaller pool, or none is there
        self.query_one("#block", Static).update(_block_text(note))

    def _draw(self, view: PoolView) -> None:
        if self.size.height:
            self._arrange()  # where there was no Show, there is no Resize either
        pool_map = self.query_one(PoolMap)
        pool_map.show(view)
        words = [view.counts_words]
        if pool_map.num_hidden:
            words.append(f"and {pool_map.num_hidden:,} more free blocks")
        words += [
            f"hit rate {view.hit_rate:.0%}",
            f"{counted(view.copies, 'copy', 'copies')}, {counted(view.evictions, 'eviction')}",
            *view.saved_words.split(" · "),  # one thing a line, for the panel is narrow
            LEGEND,
        ]
        self.query_one("#counters", Static).update("\n".join(filter(None, words)))
        self._draw_log()

    @property
    def log_lines(self) -> list[LogLine]:
        """What happened, oldest first."""
        return list(self._follower.log)

    def _draw_log(self) -> None:
        log = self.query_one("#log", Static)
        lines = self.log_lines[-max(1, log.size.height) :]
        text = Text(no_wrap=True, overflow="ellipsis")
        for line in lines:
            text.append(f"{time.strftime('%H:%M:%S', time.localtime(line.time_s))} {line}  {line.request_id}\n")
        log.update(text)


def _block_text(note: BlockNote) -> Content:
    state = f"{note.state_words}: {note.holders_words}" if note.holders_words else note.state_words
    text = Content(f"{note.figures_words}\n{state}")
    return text + Content.styled(f"\n{note.text!r}", QUIET) if note.text else text
