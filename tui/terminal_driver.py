"""The terminal as Textual drives it, made to hold where the program is stopped and woken from outside."""

from __future__ import annotations

import asyncio
import contextlib
import termios
from typing import Any

from textual.drivers.linux_driver import LinuxDriver


class TerminalDriver(LinuxDriver):
    """As Textual's own, except for a SIGCONT that comes without an orderly suspension before it.

    Textual begins anew at every SIGCONT. After a SIGSTOP, which nobody can see coming, two threads would then read the
    same keys, and the end would wait for the one that gets none; after the end, the terminal would be taken again.
    """

    _is_suspended = False
    _event_loop: asyncio.AbstractEventLoop | None = None  # while the terminal is ours
    _attributes: list[Any] | None = None  # of the terminal, while it is ours

    def start_application_mode(self) -> None:
        super().start_application_mode()  # type: ignore[no-untyped-call]
        if self._key_thread is None or not self._key_thread.is_alive():
            return  # a job in the background gets no terminal: it is stopped again, and woken in the foreground
        self._is_suspended = False
        self._event_loop = asyncio.get_running_loop()
        with contextlib.suppress(termios.error):
            self._attributes = termios.tcgetattr(self.fileno)

    def stop_application_mode(self) -> None:
        self._event_loop = None
        super().stop_application_mode()

    def suspend_application_mode(self) -> None:
        self._is_suspended = True
        super().suspend_application_mode()

    def resume_application_mode(self) -> None:
        if self._is_suspended:
            super().resume_application_mode()
        elif self._event_loop is not None:
            # This is a signal's handler: what it has interrupted may hold a lock that writing to the terminal takes.
            self._event_loop.call_soon_threadsafe(self._take_back)

    def _take_back(self) -> None:
        """The shell had the terminal meanwhile: it gets our settings again, and all is drawn. No key is lost."""
        if self._event_loop is None:
            return
        if self._attributes is not None:
            with contextlib.suppress(termios.error):
                termios.tcsetattr(self.fileno, termios.TCSANOW, self._attributes)
        self._enable_bracketed_paste()
        self._enable_mouse_support()
        self._app.refresh(layout=True)
