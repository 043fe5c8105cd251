"""One message of the conversation: who, the text as it grows, its thinking folded away, and what it took."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.events import Click, Focus
from textual.widgets import Collapsible, Static

from paged_chat.app.chats import Message
from paged_chat.app.comparison.word_diff import Span, SpanKind
from paged_chat.app.service.chat_events import ReplyUpdate
from paged_chat.app.thinking import Thinking, split_thinking

from ..actions import message_bindings
from ..messages import MessageSelected
from ..plain_text import plain
from .long_text import LongText
from .reply_foot import ReplyFoot
from .reply_text import ReplyText

# Lines that say it without colour.
DIFF_STYLES: dict[SpanKind, str] = {
    "same": "",
    "only here": "underline $text-success",
    "only there": "strike dim",
}
WHO = {"user": "you", "assistant": "ai"}


class MessageView(Vertical, can_focus=True):
    """A message; while it has the focus, single keys act on it.

    A click selects it and leaves the focus where it is: who selects text with the mouse and then types is writing.

    Of few widgets, for a long chat mounts and lays out many: who speaks is drawn by this one, beside the text.
    """

    BINDINGS: ClassVar[list[BindingType]] = [*message_bindings()]
    COMPONENT_CLASSES: ClassVar[set[str]] = {"message--who"}
    FOCUS_ON_CLICK = False

    def __init__(self, message: Message, place: int, num_siblings: int) -> None:
        super().__init__(id=f"message-{message.id}", classes=message.role)
        self.message = message
        self._text = message.text  # all of it, thinking too, as far as it has come
        self._thinking, self._answer = split_thinking(message.text)
        self._body = LongText(message.text) if message.role == "user" else ReplyText(self._answer)
        self._foot = ReplyFoot(message, place, num_siblings)

    def compose(self) -> ComposeResult:
        if self._thinking is not None:
            yield self._fold(self._thinking)
        yield self._body
        yield self._foot

    def render(self) -> Content:
        return Content.styled(WHO[self.message.role], self.get_visual_style("message--who"))

    # What changes

    async def grow(self, update: ReplyUpdate) -> None:
        """Shows a reply as far as it has come."""
        if not self.is_mounted:
            return
        self._text = update.text
        await self._show_text(is_whole=update.has_ended)
        self._foot.show_update(update)

    async def replace(self, message: Message, place: int, num_siblings: int) -> None:
        """Shows the message as the store has it now."""
        # A reply that grows is ahead of the tree, which was read a moment ago.
        is_new_text = message.text != self._text and message.status != "draft"
        self.message = message
        if is_new_text:
            self._text = message.text
            await self._show_text(is_whole=True)
        if message.status != "draft":
            self._foot.show_message(message, place, num_siblings)

    async def show_diff(self, spans: Sequence[Span] | None) -> None:
        """How the reply differs from another one, in the place of its text; None is the text again."""
        self._body.display = spans is None
        shown = self.query(".diff")
        if spans is None:
            await shown.remove()
            return
        text = Content.assemble(*((plain(span.text), DIFF_STYLES[span.kind]) for span in spans))
        if shown:
            shown.first(Static).update(text)
        else:
            await self.mount(Static(text, classes="diff", markup=False), after=self._body)

    def toggle_folds(self) -> None:
        """Unfolds or folds the thinking, or a long text."""
        for thinking in self.query(Collapsible):
            thinking.collapsed = not thinking.collapsed
        if isinstance(self._body, LongText):
            self._body.toggle()

    # What others read

    @property
    def answer(self) -> str:
        """Without the thinking: what people copy."""
        return self._answer if self.message.role == "assistant" else self.message.text

    @property
    def code_blocks(self) -> list[str]:
        return self._body.code_blocks if isinstance(self._body, ReplyText) else []

    # Inside

    def on_focus(self, event: Focus) -> None:
        self.post_message(MessageSelected(self.message.id))

    def on_click(self, event: Click) -> None:
        self.post_message(MessageSelected(self.message.id))

    async def _show_text(self, *, is_whole: bool) -> None:
        self._thinking, self._answer = split_thinking(self._text)
        if self._thinking is not None:
            await self._show_thinking(self._thinking)
        if isinstance(self._body, ReplyText):
            # Once in whole, for what was parsed bit by bit may have been taken for something else.
            (self._body.show if is_whole else self._body.grow)(self._answer)

    async def _show_thinking(self, thinking: Thinking) -> None:
        """Most replies don't think, so the fold comes with the first thought."""
        if not self.query(Collapsible):
            await self.mount(self._fold(thinking), before=self._body)
        fold = self.query_one(Collapsible)
        fold.title = _title_of(thinking)
        fold.query_one(".thought", Static).update(plain(thinking.text))

    def _fold(self, thinking: Thinking) -> Collapsible:
        text = Static(plain(thinking.text), classes="thought", markup=False)
        return Collapsible(text, title=_title_of(thinking), collapsed=True, classes="thinking")


def _title_of(thinking: Thinking) -> str:
    return "thinking…" if thinking.is_open_ended else "thinking"
