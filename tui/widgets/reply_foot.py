"""The lines under a message: where its blocks came from, which version it is, what it took, how it ended."""

from __future__ import annotations

from rich.cells import cell_len
from textual.content import Content
from textual.geometry import Size
from textual.widget import Widget

from paged_chat.app.cache_view.block_strip import StripKind, strip_of
from paged_chat.app.cache_view.search_words import search_words
from paged_chat.app.chats import Message, ReplyCost
from paged_chat.app.counted import counted
from paged_chat.app.service.chat_events import ReplyUpdate
from paged_chat.app.service.reply_cost import cost_words

from ..block_colours import letter_style
from ..key_names import key_of
from ..plain_text import plain
from .engine_words import short_name

BETWEEN = " · "
MIN_STRIP_ROOM = 8  # letters


class ReplyFoot(Widget):
    """Drawn from a message, or from the newest update while it grows; not shown where there is nothing to say."""

    DEFAULT_CSS = """
    ReplyFoot { width: 1fr; height: auto; color: $text-muted; }
    """

    def __init__(self, message: Message, place: int, num_siblings: int) -> None:
        super().__init__()
        self._message = message
        self._place, self._num_siblings = place, num_siblings
        self._update: ReplyUpdate | None = None

    def on_mount(self) -> None:
        self._show()

    def show_message(self, message: Message, place: int, num_siblings: int) -> None:
        self._message = message
        self._place, self._num_siblings = place, num_siblings
        self._update = None
        self._show()

    def show_update(self, update: ReplyUpdate) -> None:
        self._update = update
        self._show()

    def render(self) -> Content:
        return Content("\n").join(self._lines_at(self.size.width))

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(self._lines_at(width))

    def _show(self) -> None:
        self.display = bool(self._cost or self._versions or self._state_words())
        self.refresh(layout=self.display)

    def _lines_at(self, width: int) -> list[Content]:
        lines = _broken_between([plain(words) for words in self._words()], width)
        words = [part for line in lines for part in Content(line).wrap(max(1, width))]
        return [line for line in (self._strip_line(width), *words) if line]

    @property
    def _cost(self) -> ReplyCost | None:
        return self._message.cost if self._update is None else self._update.cost_so_far

    @property
    def _versions(self) -> str:
        return f"← {self._place + 1}/{self._num_siblings} →" if self._num_siblings > 1 else ""

    def _strip_line(self, width: int) -> Content:
        if self._cost is None:
            return Content(self._versions)
        strip = strip_of(self._cost)
        room = width - len(self._versions) - 2
        letters = strip.letters if strip.num_blocks <= max(room, MIN_STRIP_ROOM) else strip.short_letters
        is_dark = self.app.current_theme.dark
        line = Content.assemble(*((letter, _style_of(letter, is_dark)) for letter in letters))
        return (line + f"  {self._versions}").rstrip().truncate(max(1, width), ellipsis=True)

    def _words(self) -> list[str]:
        words = []
        is_reading = self._update is not None and not self._update.num_generated_tokens
        if self._cost is not None and not is_reading:
            words += cost_words(self._cost, self._message.model and short_name(self._message.model)).split(BETWEEN)
        return words + self._state_words()

    def _state_words(self) -> list[str]:
        message, update = self._message, self._update
        status = message.status if update is None else update.status
        reason = message.finish_reason if update is None else update.finish_reason
        if status == "draft":
            return [_growing_words(update)]
        if status == "stopped":
            return [f"stopped, {key_of(self, 'continue_reply')} goes on"]
        if status == "failed":
            error = message.error if update is None else update.error
            return [f"failed: {error or 'the engine ended it'}", f"{key_of(self, 'retry')} tries again"]
        if reason == "length":
            return [f"cut at its longest length, {key_of(self, 'continue_reply')} goes on"]
        save_error = None if update is None else update.save_error
        return [f"not saved yet: {save_error}"] if save_error else []


def _style_of(letter: str, is_dark: bool) -> str:
    look = next((kind.look for kind in StripKind if kind.look.letter == letter), None)
    return (look and letter_style(look, is_dark=is_dark)) or ""


def _broken_between(words: list[str], width: int) -> list[str]:
    """As many of them on a line as it has room for; what is longer than a line has its own."""
    lines: list[str] = []
    for word in words:
        longer = f"{lines[-1]}{BETWEEN}{word}" if lines else word
        if lines and cell_len(longer) <= width:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


def _growing_words(update: ReplyUpdate | None) -> str:
    if update is None or update.request_id is None:
        return "waiting for the model"
    if update.search is not None:
        return f"searching: {search_words(update.search)}"
    if not update.num_generated_tokens:
        return f"reading: {update.plan}" if update.plan is not None else "reading"
    return f"writing, {counted(update.num_generated_tokens, 'token')}"
