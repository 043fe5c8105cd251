"""The terminal application over a real store and a fake engine, driven by keys as a person drives it."""

import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

from textual.pilot import Pilot
from textual.screen import Screen

from chat_desk import ChatDesk
from fake_engine import FakeEngine
from paged_chat.app.chats import Message
from paged_chat.app.engine_mode import EngineMode
from paged_chat.app.service.chat_service import ChatService
from paged_chat.tui.app import PagedChatTui
from paged_chat.tui.engine_choice import EngineChoice
from paged_chat.tui.plain_text import plain
from paged_chat.tui.screens.chat_screen import ChatScreen
from paged_chat.tui.widgets.conversation import Conversation
from paged_chat.tui.widgets.message_view import MessageView
from paged_chat.tui.widgets.prompt import Prompt
from patience import PATIENCE_S


class WatchedTui(PagedChatTui):
    """Remembers every notice, for they go away by themselves, on a busy machine before anybody looks."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.told: list[str] = []

    def notify(self, message: str, **how: Any) -> None:
        self.told.append(plain(message))
        super().notify(message, **how)


class Terminal:
    """One terminal: `keys` and `write` are what a person does, the rest is what they see."""

    def __init__(self, app: WatchedTui, pilot: Pilot[None], fake: FakeEngine) -> None:
        self.app, self.pilot, self.fake = app, pilot, fake

    @property
    def screen(self) -> ChatScreen:
        return self.app.chat_screen

    @property
    def prompt(self) -> Prompt:
        return self.screen.query_one(Prompt)

    @property
    def conversation(self) -> Conversation:
        return self.screen.query_one(Conversation)

    @property
    def texts(self) -> list[str]:
        """The messages that are shown, from top to bottom."""
        return [view.answer for view in self.conversation.views]

    @property
    def notices(self) -> list[str]:
        """All that were told since the start."""
        return self.app.told

    def view(self, message: Message) -> MessageView:
        return next(view for view in self.conversation.views if view.message.id == message.id)

    async def keys(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.pilot.pause()

    async def write(self, text: str) -> None:
        """Types into the prompt, as fast as a paste but without being one."""
        self.prompt.focus()
        self.prompt.insert(text)
        await self.pilot.pause()

    async def send(self, text: str, *replies: str) -> None:
        """Sends a message and waits until the whole answer is shown and stored."""
        if replies:
            self.fake.enqueue(*replies)
        num_before = len(self.screen.messages)
        await self.write(text)
        await self.keys("enter")
        await self.until(lambda: len(self.screen.messages) > num_before and self.is_idle)

    async def dialog(self) -> Screen[Any]:
        """Waits for the dialog that was asked for."""
        await self.until(lambda: self.app.screen is not self.screen and self.app.screen.children)
        await self.pilot.pause()
        return self.app.screen

    async def until(self, condition: Callable[[], object]) -> None:
        """Waits for what the screen will show in a moment."""
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, f"it never came; shown: {self.texts}, told: {self.notices}"
            await self.pilot.pause(0.01)

    @property
    def path(self) -> list[Message]:
        return self.screen.path

    @property
    def is_idle(self) -> bool:
        return all(message.status != "draft" for message in self.screen.messages)


@contextlib.asynccontextmanager
async def open_terminal(
    desk: ChatDesk, *, size: tuple[int, int] = (120, 40), draws_notices: bool = False
) -> AsyncIterator[Terminal]:
    """The application with the desk's chats; the desk stays open when it is left."""
    app = make_app(desk)
    async with app.run_test(size=size, notifications=draws_notices) as pilot:
        terminal = Terminal(app, pilot, desk.fake)
        await terminal.until(lambda: terminal.screen.service is not None)
        yield terminal


def make_app(desk: ChatDesk, keymap_path: Path | None = None) -> WatchedTui:
    @contextlib.contextmanager
    def open_chats(_: object) -> Iterator[ChatService]:
        yield desk.service

    choice = EngineChoice(EngineMode.OWN, desk.service.engine_status.model, desk.path.with_name("engine.txt"))
    return WatchedTui(open_chats, keymap_path or desk.path.with_name("keymap.toml"), choice)
