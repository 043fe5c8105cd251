"""A reply token by token, as plain text; a cursor goes from one to the next."""

from __future__ import annotations

from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding, BindingType
from textual.events import Click, Resize
from textual.geometry import Region, Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from paged_chat.app.token_view.reply_tokens import ReplyToken, ReplyTokens
from paged_chat.app.token_view.token_words import Surety, surety_of

from ..messages import TokenPointed
from ..token_lines import Line, Part, lines_of

# Beside the tint, for terminals without colours.
_MARKS = {
    Surety.SURE: Style(),
    Surety.LIKELY: Style(),
    Surety.DOUBTFUL: Style(underline=True),
    Surety.UNLIKELY: Style(underline=True, bold=True),
}


class TokenText(ScrollView, can_focus=True):
    """Always: the cursor is on a token of the reply, if it has any."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left,h", "move(-1)", "token before", show=False),
        Binding("right,l", "move(1)", "token after", show=False),
        Binding("up,k", "move_line(-1)", "line above", show=False),
        Binding("down,j", "move_line(1)", "line below", show=False),
        Binding("home", "move(-1000000)", "first token", show=False),
        Binding("end", "move(1000000)", "last token", show=False),
    ]

    def __init__(self, reply: ReplyTokens) -> None:
        super().__init__()
        self._tokens = list(reply.tokens)
        self._lines: list[Line] = []
        self._place_of: dict[int, tuple[int, Part]] = {}  # the line and the part where a token begins
        self.cursor = 0

    @property
    def token(self) -> ReplyToken | None:
        """The one under the cursor."""
        return self._tokens[self.cursor] if self._tokens else None

    def replace(self, token: ReplyToken) -> None:
        """More is known of a token now."""
        self._tokens[token.index] = token
        self.refresh()

    def render_line(self, y: int) -> Strip:
        number = y + self.scroll_offset.y
        if number >= len(self._lines):
            return Strip.blank(self._width, self.rich_style)
        segments = [Segment(part.text, self._style(part.index)) for part in self._lines[number]]
        return Strip(segments).adjust_cell_length(self._width).apply_style(self.rich_style)

    def action_move(self, distance: int) -> None:
        self._put_cursor(self.cursor + distance)

    def action_move_line(self, direction: int) -> None:
        """To the token of the next line that stands over or under this one."""
        number, here = self._place_of.get(self.cursor, (0, None))
        wanted = number + direction
        while 0 <= wanted < len(self._lines) and not self._lines[wanted]:
            wanted += direction
        if here is None or not 0 <= wanted < len(self._lines):
            return
        nearest = min(self._lines[wanted], key=lambda part: abs(part.column - here.column))
        self._put_cursor(nearest.index)

    def on_click(self, event: Click) -> None:
        number = event.y + self.scroll_offset.y
        if number < len(self._lines):
            for part in self._lines[number]:
                if part.column <= event.x < part.column + part.width:
                    self._put_cursor(part.index)

    def on_mount(self) -> None:
        self._put_cursor(0)

    def on_resize(self, event: Resize) -> None:
        self._lines = lines_of(self._tokens, self._width)
        self._place_of = {}
        for number, line in enumerate(self._lines):
            for part in line:
                self._place_of.setdefault(part.index, (number, part))
        self.virtual_size = Size(self._width, len(self._lines))

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self.refresh()

    def _put_cursor(self, index: int) -> None:
        if not self._tokens:
            return
        self.cursor = min(max(index, 0), len(self._tokens) - 1)
        if self.cursor in self._place_of:
            number, part = self._place_of[self.cursor]
            self.scroll_to_region(Region(part.column, number, part.width, 1), animate=False)
        self.refresh()
        self.post_message(TokenPointed(self.cursor))

    def _style(self, index: int) -> Style:
        if index == self.cursor:
            return Style(reverse=True, bold=True)
        return look_style(surety_of(self._tokens[index]), is_dark=self.app.current_theme.dark)

    @property
    def _width(self) -> int:
        return max(1, self.scrollable_content_region.width)


def look_style(surety: Surety | None, *, is_dark: bool) -> Style:
    """How a token so likely is drawn."""
    if surety is None:
        return Style()
    return _MARKS[surety] + Style(bgcolor=surety.look.dark if is_dark else surety.look.light)
