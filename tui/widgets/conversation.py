"""The messages of a chat, the newest at the bottom; of a long chat only a window is mounted."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import groupby

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.geometry import Region, Size
from textual.layout import DockArrangeResult
from textual.scrollbar import ScrollBar
from textual.widget import Widget
from textual.widgets import Static

from paged_chat.app.counted import counted
from paged_chat.app.service.chat_events import ReplyUpdate

from ..rows import Row
from .message_view import MessageView
from .reply_group import ReplyGroup

# The window, in heights of the screen: rows are mounted when less than NEAR is left to scroll over, and those farther
# than FAR are let go. A few come with each frame, so that none takes long.
NEAR = 1.0
FAR = 3.0
STEP = 4  # rows
FIRST = 12  # rows that are mounted at once where a chat is opened

RowView = MessageView | ReplyGroup


def _view_of(row: Row) -> RowView:
    if row.is_group:
        return ReplyGroup(row.messages, row.place)
    return MessageView(row.messages[0], row.place, row.num_siblings)


async def _refresh(view: RowView, row: Row) -> None:
    if isinstance(view, ReplyGroup):
        await view.replace(row.messages, row.place)
    else:
        await view.replace(row.messages[0], row.place, row.num_siblings)


class Conversation(VerticalScroll, can_focus=False):
    """Shows rows, follows the end while it is there, and mounts others as the person scrolls up or down to them.

    Always: the mounted views are those of rows [first, end), in order.
            The message at the top of the screen stays where it is, whatever comes, goes or grows above it.
    """

    def __init__(self) -> None:
        super().__init__(id="conversation")
        self._rows: list[Row] = []
        self._views: list[RowView] = []
        self._first = 0
        self._changing = asyncio.Lock()  # held from the look at what is mounted until the rest is
        self._is_moving = False  # the window
        self._marked_id: int | None = None  # the message that is selected
        self._regions: dict[RowView, Region] = {}  # of the views, from the top of all, as they were laid out last
        self._arranged: DockArrangeResult | None = None
        self._above = Static("", classes="more", markup=False)
        self._below = Static("", classes="more", markup=False)

    def compose(self) -> ComposeResult:
        yield self._above
        yield self._below

    def on_mount(self) -> None:
        self.anchor()
        self._show_edges()

    # What is shown

    @property
    def views(self) -> list[MessageView]:
        """Every mounted message, those side by side too, from top to bottom."""
        return [view for row in self._views for view in (row.views if isinstance(row, ReplyGroup) else [row])]

    @property
    def last_view(self) -> MessageView | None:
        """Of those side by side the one that was looked at last."""
        last = self._views[-1] if self._views else None
        return last.shown_view if isinstance(last, ReplyGroup) else last

    @property
    def is_at_end(self) -> bool:
        return self._end == len(self._rows) and self.scroll_y >= self.max_scroll_y - 1

    async def show(self, rows: Sequence[Row]) -> None:
        """Shows these rows, keeping every view whose row is still there; the end is shown if it was before."""
        async with self._changing:
            follows = self.is_at_end or not self._rows
            old = {row.key: view for row, view in zip(self._rows[self._first : self._end], self._views, strict=True)}
            was_at_end = self._end == len(self._rows)
            self._rows = list(rows)
            num_mounted = max(len(self._views), FIRST)
            if was_at_end or not old:
                self._first = max(0, len(self._rows) - num_mounted)
            else:
                self._first = min(self._first, max(0, len(self._rows) - num_mounted))
            wanted = self._rows[self._first : self._first + num_mounted]
            wanted_keys = {row.key for row in wanted}
            views = [old.get(row.key) or _view_of(row) for row in wanted]
            gone = [view for key, view in old.items() if key not in wanted_keys]
            focused = self.screen.focused
            loses_focus = focused is not None and any(view in focused.ancestors_with_self for view in gone)
            if loses_focus:
                self.screen.set_focus(None)  # else it would go on to another message
            with self.app.batch_update():
                for view in gone:
                    await view.remove()
                # Runs of new views are mounted together, each after the kept one that it follows.
                place: Widget = self._above
                for is_kept, run in groupby(zip(wanted, views, strict=True), key=lambda pair: pair[0].key in old):
                    pairs = list(run)
                    if is_kept:
                        for row, view in pairs:
                            await _refresh(view, row)
                    else:
                        await self.mount(*(view for _, view in pairs), after=place)
                    place = pairs[-1][1]
                self._views = views
            self._show_edges()
            if follows:
                self.anchor()
            if loses_focus:
                self._focus_marked()

    async def clear(self) -> None:
        """Before another chat is shown."""
        async with self._changing:
            await self._replace_window([], 0, 0)

    async def grow(self, update: ReplyUpdate) -> None:
        for view in self._views:
            if isinstance(view, ReplyGroup) or view.message.id == update.message_id:
                await view.grow(update)

    def mark(self, message_id: int | None) -> None:
        """Shows which message is selected; None is none."""
        self._marked_id = message_id
        self._draw_mark()

    # The window

    @property
    def _end(self) -> int:
        return self._first + len(self._views)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        self._look_at_edges()

    def watch_virtual_size(self, old_size: Size, new_size: Size) -> None:
        self._look_at_edges()

    def _look_at_edges(self) -> None:
        """Moves the window where little is left to scroll over; one move at a time."""
        if self._is_moving or not self.size.height:
            return
        near = NEAR * self.size.height
        if self._first > 0 and self.scroll_y < near:
            self._is_moving = True
            self.call_later(self._move, -1)
        elif self._end < len(self._rows) and self.max_scroll_y - self.scroll_y < near:
            self._is_moving = True
            self.call_later(self._move, 1)

    async def _move(self, direction: int) -> None:
        """Mounts rows at one edge, and lets go of what is far beyond the other."""
        far = FAR * self.size.height
        async with self._changing:
            if not self._views:
                self._is_moving = False
                return
            with self.app.batch_update():
                if direction < 0:
                    first = max(0, self._first - STEP)
                    views = [_view_of(row) for row in self._rows[first : self._first]]
                    gone = [view for view in self._views if self._top_of(view) > self.scroll_y + self.size.height + far]
                    await self.mount(*views, after=self._above)
                    self._first = first
                    self._views = [*views, *self._views[: len(self._views) - len(gone)]]
                else:
                    views = [_view_of(row) for row in self._rows[self._end : self._end + STEP]]
                    gone = [view for view in self._views if self._bottom_of(view) < self.scroll_y - far]
                    await self.mount(*views, after=self._views[-1])
                    self._first += len(gone)
                    self._views = [*self._views[len(gone) :], *views]
                for view in gone:
                    await view.remove()
        self._show_edges()
        self.call_after_refresh(self._end_move)

    def _end_move(self) -> None:
        self._is_moving = False
        self._look_at_edges()

    def _top_of(self, view: RowView) -> int:
        return self._regions[view].y if view in self._regions else 0

    def _bottom_of(self, view: RowView) -> float:
        return self._regions[view].bottom if view in self._regions else float("inf")

    def _focus_marked(self) -> None:
        for view in self.views:
            if view.message.id == self._marked_id:
                self.screen.set_focus(view, scroll_visible=False)

    def _draw_mark(self) -> None:
        for view in self.views:
            view.set_class(view.message.id == self._marked_id, "selected")

    def _show_edges(self) -> None:
        self._draw_mark()
        num_above, num_below = self._first, len(self._rows) - self._end
        self._above.update(f"▲ {counted(num_above, 'earlier message')}")
        self._above.display = num_above > 0
        self._below.update(f"▼ {counted(num_below, 'later message')}")
        self._below.display = num_below > 0

    # What is seen stays

    def arrange(self, size: Size, optimal: bool = False) -> DockArrangeResult:
        """Scrolls by as much as the message at the top of the screen has moved.

        Within the layout itself, as Textual does it for what is anchored to the end: a frame later it would be seen.
        """
        arranged = super().arrange(size, optimal)
        if arranged is self._arranged or optimal:
            return arranged
        placed = {placement.widget: placement.region for placement in arranged.placements}
        regions = {view: placed[view] for view in self._views if view in placed}
        for view, region in self._regions.items():
            if region.bottom > self.scroll_y and view in regions:
                self._shift(regions[view].y - region.y)
                break
        self._arranged, self._regions = arranged, regions
        return arranged

    def _shift(self, distance: int) -> None:
        if distance and self._regions:
            scroll_y = max(0.0, self.scroll_y + distance)
            self.set_reactive(Widget.scroll_y, scroll_y)
            self.set_reactive(Widget.scroll_target_y, scroll_y)
            self.vertical_scrollbar.set_reactive(ScrollBar.position, scroll_y)

    # Moving about

    async def show_end(self) -> None:
        """Goes to the last message and follows it from there."""
        async with self._changing:
            if self._end < len(self._rows):
                await self._replace_window(self._rows, max(0, len(self._rows) - FIRST), len(self._rows))
            self.anchor()

    async def reveal(self, message_id: int) -> None:
        """Scrolls to a message, wherever it is on the path, and selects it."""
        async with self._changing:
            place = next((i for i, row in enumerate(self._rows) if message_id in row.key), None)
            if place is None:
                return
            if not self._first <= place < self._end:
                first = max(0, min(place - STEP, len(self._rows) - FIRST))
                await self._replace_window(self._rows, first, first + FIRST)
            self._go_to(next(view for view in self.views if view.message.id == message_id))

    async def _replace_window(self, rows: list[Row], first: int, end: int) -> None:
        """Shows rows [first, end) and nothing of what was mounted before."""
        with self.app.batch_update():
            for view in self._views:
                await view.remove()
            self._rows, self._first = rows, first
            self._views = [_view_of(row) for row in rows[first:end]]
            await self.mount(*self._views, after=self._above)
        self._regions, self._arranged = {}, None
        self._show_edges()

    def _go_to(self, view: MessageView) -> None:
        """Once everything above it has its height."""
        self.release_anchor()
        view.focus(scroll_visible=False)
        self.call_after_refresh(self.scroll_to_widget, view, top=True, animate=False)

    def step(self, direction: int, selected_id: int | None) -> None:
        """Selects the message above (-1) or below (1) the selected one; without one, the last."""
        views = [view for view in self.views if view.display]
        ids = [view.message.id for view in views]
        if selected_id in ids:
            views[min(max(ids.index(selected_id) + direction, 0), len(views) - 1)].focus()
        elif self.last_view is not None:
            self.last_view.focus()
