"""The terminal application: opens the chats behind a screen that is already there, and closes them again."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
import traceback
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, NoReturn

from textual import work
from textual.app import App, SystemCommand
from textual.constants import DEFAULT_THEME
from textual.notifications import SeverityLevel
from textual.screen import Screen
from textual.worker import Worker, WorkerState

from paged_chat.app.errors import PagedChatError, words_of
from paged_chat.app.porting.new_file import new_file

from .engine_choice import CHOICES, EngineChoice
from .key_names import key_of
from .keymap import clashes, read_keymap, sample_keymap
from .notices import show_error
from .plain_text import plain
from .screens.chat_screen import ChatScreen
from .screens.dialogs import ChoiceDialog
from .terminal_driver import TerminalDriver

if TYPE_CHECKING:
    from paged_chat.app.api.running_server import RunningServer
    from paged_chat.app.service.chat_service import ChatService

ERROR_FILE = "tui-error.log"
THEME_FILE = "tui-theme.txt"

# Opens the store and begins to load the model, or to use a server's; entering it may take its time, for that is done on
# a thread of its own.
OpenChats = Callable[["RunningServer | None"], "AbstractContextManager[ChatService]"]


class PagedChatTui(App[None]):
    """Chats in the terminal."""

    TITLE = "paged-chat"
    CSS_PATH: ClassVar[Path] = Path(__file__).with_name("paged_chat.tcss")
    PAUSE_GC_ON_SCROLL = True
    ENABLE_COMMAND_PALETTE = False  # by a key of its own, that is: ours is an action like all others

    def __init__(self, open_chats: OpenChats, keymap_path: Path, engine_choice: EngineChoice) -> None:
        super().__init__(driver_class=TerminalDriver)
        self.use_command_palette = True
        self.engine_choice = engine_choice
        self._open_chats = open_chats
        self._chats: AbstractContextManager[ChatService] | None = None
        self.keymap_path = keymap_path
        self.keymap: dict[str, str] = {}
        self._theme_path = keymap_path.with_name(THEME_FILE)
        self._told_until_s: dict[str, float] = {}  # when each notice goes, by what it says

    def on_mount(self) -> None:
        self._read_keymap()
        self._read_theme()
        if not self.is_headless:
            loop = asyncio.get_running_loop()
            loop.add_signal_handler(signal.SIGHUP, self._hang_up)
            for number in (signal.SIGINT, signal.SIGTERM):  # Ctrl-C is a key here: this is another program's wish
                loop.add_signal_handler(number, partial(self.exit, return_code=128 + number))
        screen = ChatScreen()
        self.push_screen(screen)
        # The first frame is on the terminal before anything else takes the processor: importing torch does for seconds.
        # It is this screen's own; the application's is that of the empty one below it.
        screen.call_after_refresh(self._open)

    @work(exit_on_error=False)
    async def _open(self) -> None:
        """Everything slow on another thread; between that, the person may be asked whose engine is to answer."""
        try:
            question = await asyncio.to_thread(self.engine_choice.look)
            if question is not None:
                self.engine_choice.answer(await self.push_screen_wait(ChoiceDialog(question.words, CHOICES)))
            chats = self._open_chats(self.engine_choice.server)
            service = await asyncio.to_thread(chats.__enter__)
        except PagedChatError as error:
            self.chat_screen.stay_closed(str(error))
            return
        self._chats = chats
        self.chat_screen.attach(service)

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        """A fault of ours while the chats are opened: told, for nobody waits for its result."""
        if event.state is WorkerState.ERROR and event.worker.error is not None:
            self.chat_screen.stay_closed(words_of(event.worker.error))

    @property
    def chat_screen(self) -> ChatScreen:
        return next(screen for screen in self.screen_stack if isinstance(screen, ChatScreen))

    def close_chats(self) -> None:
        """Stops replies and keeps what there is of them; safe twice.

        After `run`, when the terminal is a plain one again: the end may have to wait for another program, and says so.
        """
        chats, self._chats = self._chats, None
        if chats is not None:
            chats.__exit__(None, None, None)

    def _hang_up(self) -> NoReturn:
        """The terminal is gone: what replies have so far is kept, nothing is drawn, nothing put right."""
        self.close_chats()
        os._exit(128 + signal.SIGHUP)

    def notify(
        self,
        message: str,
        *,
        title: str = "",
        severity: SeverityLevel = "information",
        timeout: float | None = None,
        markup: bool = False,
    ) -> None:
        """Always plain text, for there are titles and names of files in it; what is shown already isn't shown twice."""
        timeout = self.NOTIFICATION_TIMEOUT if timeout is None else timeout
        now_s = time.monotonic()
        if self._told_until_s.get(message, now_s) > now_s:
            return
        self._told_until_s = {words: until_s for words, until_s in self._told_until_s.items() if until_s > now_s}
        self._told_until_s[message] = now_s + timeout
        super().notify(plain(message), title=title, severity=severity, timeout=timeout, markup=False)

    def clear_notifications(self) -> None:
        self._told_until_s.clear()  # what is no longer shown may be told again
        super().clear_notifications()

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        yield SystemCommand("Theme", "Change the colours", self.search_themes)
        yield SystemCommand("Screenshot", "Save a picture of the screen as SVG", self.deliver_screenshot)

    def action_help_quit(self) -> None:
        """Ctrl+C copies what is selected with the mouse; with nothing selected, a person may want to leave."""
        self.notify(f"{key_of(self, 'quit')} quits; Ctrl+C copies what is selected with the mouse.")

    def _fatal_error(self) -> None:
        """A fault of ours: the details go to a file, a sentence to the terminal."""
        path = self.keymap_path.with_name(ERROR_FILE)
        with contextlib.suppress(OSError):
            path.write_text(traceback.format_exc(), encoding="utf-8")
        self.bell()
        self.panic(f"paged-chat has stopped after a fault of its own; your chats are kept. Details: {path}")

    def watch_theme(self, theme: str) -> None:
        """Colours that a person has chosen are there at the next start."""
        if theme != (self._read_theme_name() or DEFAULT_THEME):
            with contextlib.suppress(OSError):
                self._theme_path.write_text(f"{theme}\n", encoding="utf-8")

    def _read_theme(self) -> None:
        name = self._read_theme_name()
        if name in self.available_themes:
            self.theme = name

    def _read_theme_name(self) -> str:
        try:
            return self._theme_path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError):
            return ""

    def _read_keymap(self) -> None:
        try:
            self.keymap = read_keymap(self.keymap_path)
        except PagedChatError as error:
            show_error(self, error)
        else:
            if both := ", ".join(clashes(self.keymap)):
                self.notify(f"{self.keymap_path}: {both}; only one of them happens", severity="warning")
            if not os.path.exists(self.keymap_path):
                with contextlib.suppress(PagedChatError), new_file(self.keymap_path) as out:
                    out.write(sample_keymap())
        self.set_keymap(self.keymap)
