"""The lines under a message: where its blocks came from, which version it is, what it took, how it ended."""

from __future__ import annotations

from rich.style import Style
from rich.text import Text
from textual.widgets import Static

from paged_chat.app.cache_view.block_strip import StripKind, strip_of
from paged_chat.app.chats import Message
from paged_chat.app.service.chat_events import ReplyUpdate
from paged_chat.app.service.reply_cost import cost_words

from ..key_names import key_of
from .engine_words import short_name

QUIET = Style(dim=True)


class ReplyFoot(Static):
    """Drawn from a message, or from the newest update while it grows."""

    DEFAULT_CSS = """
    ReplyFoot { width: 1fr; height: auto; color: $text-muted; }
    """

    def __init__(self, message: Message, place: int, num_siblings: int) -> None:
        super().__init__("", markup=False)
        self._message = message
        self._place, self._num_siblings = place, num_siblings
        self._update: ReplyUpdate | None = None

    def show_message(self, message: Message, place: int, num_siblings: int) -> None:
        self._message, self._place, self._num_siblings = message, place, num_siblings
        self._update = None
        self._draw()

    def show_update(self, update: ReplyUpdate) -> None:
        self._update = update
        self._draw()

    def on_mount(self) -> None:
        self._draw()

    def on_resize(self) -> None:
        self._draw()

    def notify_style_update(self) -> None:
        super().notify_style_update()
        if self.is_mounted:
            self._draw()

    def _draw(self) -> None:
        lines = [line for line in (self._strip_line(), self._words_line()) if line]
        self.display = bool(lines)
        self.update(Text("\n").join(lines))

    def _strip_line(self) -> Text:
        line = Text(no_wrap=True, overflow="ellipsis")
        cost = self._message.cost if self._update is None else self._update.cost
        versions = f"← {self._place + 1}/{self._num_siblings} →" if self._num_siblings > 1 else ""
        if cost is not None:
            strip = strip_of(cost)
            room = self.size.width - len(versions) - 2
            is_short = len(strip.cells) > max(room, 8)
            is_dark = self.app.current_theme.dark
            for letter in strip.short_letters if is_short else strip.letters:
                line.append(letter, self._style_of(letter, is_dark))
            if versions:
                line.append("  ")
        line.append(versions)
        return line

    def _style_of(self, letter: str, is_dark: bool) -> Style:
        look = next((kind.look for kind in StripKind if kind.look.letter == letter), None)
        return QUIET if look is None else Style(color=look.dark if is_dark else look.light)

    def _words_line(self) -> Text:
        words = []
        cost = self._message.cost if self._update is None else self._update.cost
        if cost is not None:
            words.append(cost_words(cost, self._message.model and short_name(self._message.model)))
        words += self._state_words()
        return Text(" · ".join(words), overflow="fold")

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


def _growing_words(update: ReplyUpdate | None) -> str:
    if update is None or update.request_id is None:
        return "waiting for the model"
    if not update.num_generated_tokens:
        return f"reading: {update.plan}" if update.plan is not None else "reading"
    words = f"writing, {update.num_generated_tokens:,} tokens"
    if update.tokens_per_s is not None:
        words += f" at {update.tokens_per_s:,.0f}/s"
    return words
