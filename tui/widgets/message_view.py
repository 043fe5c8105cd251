"""One message of the conversation: who, the text as it grows, its thinking folded away, and what it took."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical
from textual.events import Click, Focus
from textual.widgets import Collapsible, Label, Markdown, Static
from textual.widgets.markdown import MarkdownStream

from paged_chat.app.chats import Message
from paged_chat.app.service.chat_events import ReplyUpdate
from paged_chat.app.thinking import Thinking, split_thinking

from ..actions import message_bindings
from ..messages import MessageSelected
from .code_block import ReplyMarkdown
from .long_text import LongText
from .reply_foot import ReplyFoot


class MessageView(Horizontal, can_focus=True):
    """A message; while it has the focus, single keys act on it."""

    BINDINGS: ClassVar[list[BindingType]] = [*message_bindings()]

    def __init__(self, message: Message, place: int, num_siblings: int) -> None:
        super().__init__(id=f"message-{message.id}", classes=message.role)
        self.message = message
        self._text = message.text  # all of it, thinking too, as far as it has come
        self._thinking, self._answer = split_thinking(message.text)
        self._stream: MarkdownStream | None = None
        self._foot = ReplyFoot(message, place, num_siblings)

    def compose(self) -> ComposeResult:
        yield Label("you" if self.message.role == "user" else "ai", classes="who")
        with Vertical(classes="content"):
            if self.message.role == "user":
                yield LongText(self.message.text)
            else:
                yield ReplyMarkdown(self._answer)
            yield self._foot

    async def on_mount(self) -> None:
        await self._show_thinking()

    async def on_unmount(self) -> None:
        await self._end_stream()

    # What changes

    def show_siblings(self, place: int, num_siblings: int) -> None:
        self._foot.show_message(self.message, place, num_siblings)

    async def grow(self, update: ReplyUpdate) -> None:
        """Shows a reply as far as it has come; the Markdown that is already there isn't drawn again."""
        if not self.is_mounted:
            return
        before, self._text = self._answer, update.text
        self._thinking, self._answer = split_thinking(update.text)
        await self._show_thinking()
        if update.has_ended:
            await self._end_stream()
            # Once in whole, for what was parsed bit by bit may have been taken for something else.
            await self.query_one(ReplyMarkdown).update(self._answer)
        elif self._answer.startswith(before):
            if new_text := self._answer[len(before) :]:
                await self._open_stream().write(new_text)
        else:
            await self._end_stream()
            await self.query_one(ReplyMarkdown).update(self._answer)
        self._foot.show_update(update)

    async def replace(self, message: Message, place: int, num_siblings: int) -> None:
        """Shows the message as the store has it now."""
        # A reply that grows is ahead of the tree, which was read a moment ago.
        is_new_text = message.text != self._text and message.status != "draft"
        self.message = message
        if is_new_text:
            self._text = message.text
            self._thinking, self._answer = split_thinking(message.text)
            await self._show_thinking()
            await self._end_stream()
            await self.query_one(ReplyMarkdown).update(self._answer)
        if message.status != "draft":
            self._foot.show_message(message, place, num_siblings)

    def toggle_folds(self) -> None:
        """Unfolds or folds the thinking, or a long text."""
        for thinking in self.query(Collapsible):
            thinking.collapsed = not thinking.collapsed
        for text in self.query(LongText):
            text.toggle()

    # What others read

    @property
    def answer(self) -> str:
        """Without the thinking: what people copy."""
        return self._answer if self.message.role == "assistant" else self.message.text

    @property
    def is_drawn(self) -> bool:
        """Whether the text has become widgets."""
        return all(markdown.children or not self._answer.strip() for markdown in self.query(ReplyMarkdown))

    @property
    def code_blocks(self) -> list[str]:
        return [code for markdown in self.query(ReplyMarkdown) for code in markdown.code_blocks]

    # Inside

    def on_focus(self, event: Focus) -> None:
        self.post_message(MessageSelected(self.message.id))

    def on_click(self, event: Click) -> None:
        self.focus(scroll_visible=False)

    async def _show_thinking(self) -> None:
        """Most replies don't think, so the fold comes with the first thought."""
        thinking: Thinking | None = self._thinking
        if thinking is None:
            return
        if not self.query(Collapsible):
            text = Static(thinking.text, classes="thought", markup=False)
            fold = Collapsible(text, title="thinking", collapsed=True, classes="thinking")
            await self.query_one(".content").mount(fold, before=0)
        fold = self.query_one(Collapsible)
        fold.title = "thinking…" if thinking.is_open_ended else "thinking"
        fold.query_one(".thought", Static).update(thinking.text)

    def _open_stream(self) -> MarkdownStream:
        if self._stream is None:
            self._stream = Markdown.get_stream(self.query_one(ReplyMarkdown))
        return self._stream

    async def _end_stream(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            await stream.stop()
