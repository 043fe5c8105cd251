"""The pool as a map: one letter a block, in the colour of its state; a cursor that can be moved over it."""

from __future__ import annotations

from itertools import groupby
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding, BindingType
from textual.events import Click, Resize
from textual.geometry import Region, Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from paged_chat.app.cache_view.block_view import BlockState, PoolView

from ..block_colours import letter_style
from ..messages import BlockPointed


class PoolMap(ScrollView, can_focus=True):
    """Draws only the lines in view, so a pool of 10,000 blocks costs no more than a small one.

    Always: the cursor is on a block of the pool that is shown.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "move(-1)", "block before", show=False),
        Binding("right", "move(1)", "block after", show=False),
        Binding("up", "move_line(-1)", "line above", show=False),
        Binding("down", "move_line(1)", "line below", show=False),
        Binding("home", "move(-1000000)", "first block", show=False),
        Binding("end", "move(1000000)", "last block", show=False),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._states: tuple[BlockState, ...] = ()
        self._num_shown = 0
        self._cursor = 0

    @property
    def num_hidden(self) -> int:
        """Free blocks after the last one that is drawn."""
        return len(self._states) - self._num_shown

    def show(self, view: PoolView) -> None:
        """Blocks that were never used yet are left out at the end."""
        self._states = view.states
        used = [place for place, state in enumerate(view.states) if state is not BlockState.FREE]
        width = self._width
        # Whole lines, and never fewer than before: the map doesn't jump while blocks come and go.
        num_lines = ((used[-1] if used else 0) // width) + 1
        self._num_shown = min(len(view.states), max(self._num_shown, num_lines * width))
        self._measure()
        self.refresh()

    def render_line(self, y: int) -> Strip:
        width = self._width
        first = (y + self.scroll_offset.y) * width
        states = self._states[first : min(first + width, self._num_shown)]
        is_dark = self.app.current_theme.dark
        segments = []
        for state, run in groupby(states):
            segments.append(Segment(state.look.letter * len(list(run)), _style(state, is_dark)))
        strip = Strip(segments).extend_cell_length(width)
        if self.has_focus and first <= self._cursor < first + len(states):
            place = self._cursor - first
            parts = strip.divide([place, place + 1, width])
            cursor = Strip([Segment(parts[1].text, Style(reverse=True, bold=True))])
            strip = Strip.join([parts[0], cursor, *parts[2:]])
        return strip.apply_style(self.rich_style)

    def action_move(self, distance: int) -> None:
        self._cursor = min(max(self._cursor + distance, 0), max(self._num_shown - 1, 0))
        line = self._cursor // self._width
        self.scroll_to_region(Region(0, line, 1, 1), animate=False)
        self.refresh()
        self.point()

    def action_move_line(self, direction: int) -> None:
        self.action_move(direction * self._width)

    def on_click(self, event: Click) -> None:
        self._cursor = min((event.y + self.scroll_offset.y) * self._width + event.x, max(self._num_shown - 1, 0))
        self.action_move(0)

    def on_focus(self) -> None:
        self.point()

    def point(self) -> None:
        """Says which block the cursor is on."""
        if self._states:
            self.post_message(BlockPointed(self._cursor + 1))

    def on_resize(self, event: Resize) -> None:
        self._measure()

    @property
    def _width(self) -> int:
        return max(1, self.scrollable_content_region.width)

    def _measure(self) -> None:
        self.virtual_size = Size(self._width, -(-self._num_shown // self._width))


def _style(state: BlockState, is_dark: bool) -> Style:
    style = letter_style(state.look, is_dark=is_dark)
    return Style(dim=True) if style is None else Style.parse(style) + Style(bold=state is BlockState.SHARED)
