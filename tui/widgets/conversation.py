"""The messages of a chat, the newest at the bottom; of a long chat only a window is mounted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.geometry import Size
from textual.widget import Widget
from textual.widgets import Static

from paged_chat.app.chats import Message, MessageTree
from paged_chat.app.service.chat_events import ReplyUpdate

from .message_view import MessageView
from .reply_group import ReplyGroup

# Rows that are mounted at most, and how many come and go together. A row is some ten widgets.
WINDOW = 30
STEP = 6
NEAR_EDGE = 15  # lines


@dataclass(frozen=True, slots=True)
class Row:
    """What stands in one place of the path: a message, or several of its siblings side by side."""

    messages: tuple[Message, ...]
    place: int = 0  # among its siblings
    num_siblings: int = 1

    @property
    def key(self) -> tuple[int, ...]:
        return tuple(message.id for message in self.messages)

    @property
    def is_group(self) -> bool:
        return len(self.messages) > 1


def rows_of(tree: MessageTree, leaf_id: int | None, compared_id: int | None) -> list[Row]:
    """The path to the leaf; where `compared_id` is on it, its siblings side by side end the view."""
    rows = []
    for message in tree.path(leaf_id):
        siblings = tree.siblings(message.id)
        if message.id == compared_id and len(siblings) > 1:
            rows.append(Row(tuple(siblings)))
            break
        rows.append(Row((message,), siblings.index(message), len(siblings)))
    return rows


RowView = MessageView | ReplyGroup


def _view_of(row: Row) -> RowView:
    return ReplyGroup(row.messages) if row.is_group else MessageView(row.messages[0], row.place, row.num_siblings)


async def _refresh(view: RowView, row: Row) -> None:
    if isinstance(view, ReplyGroup):
        await view.replace(row.messages)
    else:
        await view.replace(row.messages[0], row.place, row.num_siblings)


class Conversation(VerticalScroll, can_focus=False):
    """Shows rows, follows the end while it is there, and mounts earlier rows as the person scrolls up to them.

    Always: the mounted views are those of rows [first, end), in order.
    """

    def __init__(self) -> None:
        super().__init__(id="conversation")
        self._rows: list[Row] = []
        self._views: list[RowView] = []
        self._first = 0
        self._is_moving = False  # the window
        self._height_before: int | None = None  # of all, while what changes is above the screen
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
    def is_at_end(self) -> bool:
        return self._end == len(self._rows) and self.scroll_y >= self.max_scroll_y - 1

    async def show(self, rows: Sequence[Row]) -> None:
        """Shows these rows, keeping every view whose row is still there; the end is shown if it was before."""
        follows = self.is_at_end or not self._rows
        old = {row.key: view for row, view in zip(self._rows[self._first : self._end], self._views, strict=True)}
        was_at_end = self._end == len(self._rows)
        self._rows = list(rows)
        num_mounted = max(len(self._views), WINDOW - STEP)
        if was_at_end or not old:
            self._first = max(0, len(self._rows) - num_mounted)
        else:
            self._first = min(self._first, max(0, len(self._rows) - num_mounted))
        wanted = self._rows[self._first : self._first + num_mounted]
        wanted_keys = {row.key for row in wanted}
        views = [old.get(row.key) or _view_of(row) for row in wanted]
        with self.app.batch_update():
            for key, view in old.items():
                if key not in wanted_keys:
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

    async def clear(self) -> None:
        """Before another chat is shown."""
        with self.app.batch_update():
            for view in self._views:
                await view.remove()
        self._rows, self._views, self._first = [], [], 0
        self._end_move()
        self._show_edges()

    async def grow(self, update: ReplyUpdate) -> None:
        for view in self._views:
            if isinstance(view, ReplyGroup) or view.message.id == update.message_id:
                await view.grow(update)

    # The window

    @property
    def _end(self) -> int:
        return self._first + len(self._views)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        if self._is_moving:
            return
        if new_value < NEAR_EDGE and self._first > 0:
            self._is_moving = True
            self.call_later(self._move_up)
        elif new_value > self.max_scroll_y - NEAR_EDGE and self._end < len(self._rows):
            self._is_moving = True
            self.call_later(self._move_down)

    async def _move_up(self) -> None:
        """Mounts earlier rows above, then lets go of as many below."""
        first = max(0, self._first - STEP)
        views = [_view_of(row) for row in self._rows[first : self._first]]
        self._height_before = self.virtual_size.height
        self._views = views + self._views
        self._first = first
        await self.mount(*views, after=self._above)
        self._show_edges()
        self.call_after_refresh(self._finish_move, views)

    async def _move_down(self) -> None:
        """Mounts later rows below, then lets go of as many above."""
        views = [_view_of(row) for row in self._rows[self._end : self._end + STEP]]
        await self.mount(*views, after=self._views[-1])
        self._views += views
        self.call_after_refresh(self._finish_move, views)

    def _finish_move(self, new_views: list[RowView]) -> None:
        """Markdown comes a moment after its widget, and heights a frame after that; until then the window moves."""
        is_drawn = all(view.is_drawn for view in new_views if view.is_attached)
        self.call_after_refresh(self._let_go if is_drawn else self._finish_move, new_views)

    async def _let_go(self, new_views: list[RowView]) -> None:
        """Unmounts what is beyond the window at the far edge."""
        if new_views[0] not in self._views:
            return  # another chat is shown meanwhile
        is_up = new_views[0] is self._views[0]
        self._height_before = None if is_up else self.virtual_size.height
        gone = self._views[WINDOW:] if is_up else self._views[: max(0, len(self._views) - WINDOW)]
        self._views = [view for view in self._views if view not in gone]
        self._first += 0 if is_up else len(gone)
        with self.app.batch_update():
            for view in gone:
                await view.remove()
        self._show_edges()
        self.call_after_refresh(self._end_move)

    def _end_move(self) -> None:
        self._is_moving = False
        self._height_before = None

    def watch_virtual_size(self, old_size: Size, new_size: Size) -> None:
        """What comes and goes above must not move what is on the screen."""
        if self._height_before is not None:
            distance = new_size.height - self._height_before
            self._height_before = new_size.height
            self.scroll_to(y=self.scroll_y + distance, animate=False, immediate=True)

    def _show_edges(self) -> None:
        num_above, num_below = self._first, len(self._rows) - self._end
        self._above.update(f"▲ {num_above:,} earlier messages")
        self._above.display = num_above > 0
        self._below.update(f"▼ {num_below:,} later messages")
        self._below.display = num_below > 0

    # Moving about

    async def show_end(self) -> None:
        """Goes to the last message and follows it from there."""
        if self._end < len(self._rows):
            rows = self._rows
            await self.clear()
            await self.show(rows)
        self.anchor()

    async def reveal(self, message_id: int) -> None:
        """Scrolls to a message, wherever it is on the path, and selects it."""
        place = next((i for i, row in enumerate(self._rows) if message_id in row.key), None)
        if place is None:
            return
        if not self._first <= place < self._end:
            rows = self._rows
            await self.clear()
            self._rows = list(rows)
            self._first = max(0, min(place - STEP, len(rows) - (WINDOW - STEP)))
            self._views = [_view_of(row) for row in rows[self._first : self._first + WINDOW - STEP]]
            await self.mount(*self._views, after=self._above)
            self._show_edges()
        self._go_to(next(view for view in self.views if view.message.id == message_id))

    def _go_to(self, view: MessageView) -> None:
        """Once everything above it has its height."""
        if not view.is_attached:
            return
        if all(row.is_drawn for row in self._views):
            self.release_anchor()
            view.focus(scroll_visible=False)
            self.call_after_refresh(self.scroll_to_widget, view, top=True, animate=False)
        else:
            self.call_after_refresh(self._go_to, view)

    def step(self, direction: int, selected_id: int | None) -> None:
        """Selects the message above (-1) or below (1) the selected one; without one, the last."""
        views = [view for view in self.views if view.display]
        if not views:
            return
        ids = [view.message.id for view in views]
        place = ids.index(selected_id) + direction if selected_id in ids else len(views) - 1
        views[min(max(place, 0), len(views) - 1)].focus()
