"""A reply: Markdown in one widget, however long it is, so that a long chat is cheap to lay out and to draw."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.segment import Segment
from textual.content import Content
from textual.geometry import Size
from textual.selection import Selection
from textual.strip import Strip
from textual.style import Style
from textual.widget import Widget

from ..markdown.blocks import code_blocks
from ..markdown.growing import GrowingMarkdown
from ..markdown.lines import BLANK, whole_lines
from ..messages import CodeCopied
from ..plain_text import plain


class ReplyText(Widget):
    """Draws the lines that are in view and no others. Links aren't opened: no request leaves the machine unasked."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "reply--heading",
        "reply--title",
        "reply--code",
        "reply--code-head",
        "reply--code-inline",
        "reply--address",
        "reply--faint",
    }
    DEFAULT_CSS = """
    ReplyText {
        width: 1fr;
        height: auto;
        & > .reply--heading { color: $markdown-h3-color; text-style: bold; }
        & > .reply--title { color: $markdown-h1-color; text-style: bold underline; }
        & > .reply--code { background: $surface; }
        & > .reply--code-head { background: $panel; color: $text-muted; }
        & > .reply--code-inline { background: $surface; color: $text-accent; }
        & > .reply--address { color: $text-muted; }
        & > .reply--faint { color: $text-muted; }
    }
    """

    def __init__(self, markdown: str) -> None:
        super().__init__()
        self._markdown = plain(markdown)
        self._growing: GrowingMarkdown | None = None
        self._lines: Sequence[Content] = ()
        self._width: int | None = None  # that `_lines` are of; None: of another text
        self._strips: dict[int, Strip] = {}

    # What it shows

    def grow(self, markdown: str) -> None:
        """Shows a text that begins with the one before, and is likely to go on."""
        self._growing = self._growing or GrowingMarkdown()
        self._show(markdown)

    def show(self, markdown: str) -> None:
        """Shows a text that is whole."""
        self._growing = None
        self._show(markdown)

    @property
    def code_blocks(self) -> list[str]:
        """The code of each block, from top to bottom."""
        return code_blocks(self._markdown)

    def action_copy_code(self, number: int) -> None:
        """The word above a block of code was pressed."""
        self.post_message(CodeCopied(self.code_blocks[number]))

    # Drawing

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(self._lines_at(width))

    def render_line(self, y: int) -> Strip:
        lines = self._lines_at(self.size.width)
        if y not in self._strips:
            self._strips[y] = self._strip(lines[y] if y < len(lines) else BLANK, y)
        return self._strips[y]

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._strips.clear()

    # Selecting with the mouse

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        return selection.extract("\n".join(line.plain.rstrip() for line in self._lines)), "\n"

    def selection_updated(self, selection: Selection | None) -> None:
        self._strips.clear()
        self.refresh()

    # Inside

    def _show(self, markdown: str) -> None:
        self._markdown = plain(markdown)
        self._width = None
        height = len(self._lines)
        changes_height = height != len(self._lines_at(self.size.width)) if self.size else True
        self.refresh(layout=changes_height)

    def _lines_at(self, width: int) -> Sequence[Content]:
        if width != self._width:
            self._width = width
            self._strips.clear()
            if self._growing is None:
                self._lines = whole_lines(self._markdown, width)
            else:
                self._lines = self._growing.lines(self._markdown, width)
        return self._lines

    def _strip(self, line: Content, y: int) -> Strip:
        selection = self.text_selection
        if selection is not None and (span := selection.get_span(y)) is not None:
            start, end = span
            selected = Style.from_styles(self.screen.get_component_styles("screen--selection"))
            line = line.stylize(selected, start, None if end == -1 else end)
        base = self.visual_style
        parts = line.render(base, end="", parse_style=self._style_of)
        strip = Strip([Segment(text, (base + style).rich_style) for text, style in parts], line.cell_length)
        return strip.adjust_cell_length(self.size.width, base.rich_style).apply_offsets(0, y)

    def _style_of(self, style: Style | str) -> Style:
        """Of one of our classes with the ground that it stands on, which colours that contrast with it need."""
        if isinstance(style, str) and style.startswith("."):
            return self.get_visual_style(style.removeprefix("."))
        return self._get_style(style)
