"""A real terminal, as tests see it."""

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from patience import PATIENCE_S


class Tmux:
    """One window of a tmux server of its own."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket

    def start(self, *command: str, width: int = 120, height: int = 40) -> None:
        words = " ".join(f"'{word}'" for word in command)
        self._run(
            "-f", "/dev/null", "new-session", "-d", "-s", "t", "-x", str(width), "-y", str(height),
            f"exec env -u COLUMNS -u LINES {words}",  # they would count for more than the terminal's own size
        )  # fmt: skip

    def type(self, text: str) -> None:
        self._run("send-keys", "-t", "t", "-l", text)

    def keys(self, *names: str) -> None:
        self._run("send-keys", "-t", "t", *names)

    def resize(self, width: int, height: int) -> None:
        self._run("resize-window", "-t", "t", "-x", str(width), "-y", str(height))

    @property
    def screen(self) -> str:
        return self._run("capture-pane", "-p", "-t", "t")

    @property
    def pid(self) -> int:
        """Of the program."""
        return int(self._run("display-message", "-p", "-t", "t", "#{pane_pid}"))

    @property
    def is_running(self) -> bool:
        return self._tmux("has-session").returncode == 0

    def until(self, condition: Callable[[str], object], within_s: float = PATIENCE_S) -> float:
        """Waits until the screen is so; gives the seconds that took."""
        start = time.monotonic()
        while not condition(shown := self._shown()):
            assert time.monotonic() - start < within_s, f"it never came; shown:\n{shown}"
            time.sleep(0.05)
        return time.monotonic() - start

    def end(self) -> None:
        self._tmux("kill-server")

    def _shown(self) -> str:
        """The screen, or nothing once the program has ended, which may be at any moment."""
        done = self._tmux("capture-pane", "-p", "-t", "t")
        return done.stdout if done.returncode == 0 else ""

    def _run(self, *words: str) -> str:
        done = self._tmux(*words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def _tmux(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["tmux", "-S", self._socket, *words], capture_output=True, text=True, timeout=PATIENCE_S)
