"""Whose engine the terminal uses: its own, or that of a `paged-chat web` or `serve` that runs already."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from paged_chat.app.engine_mode import EngineMode
from paged_chat.app.errors import EngineUnavailable, ExportRefused
from paged_chat.app.porting.new_file import new_file

if TYPE_CHECKING:
    from paged_chat.app.api.running_server import RunningServer

Answer = Literal["shared", "own", "always shared", "always own"]
CHOICES: tuple[tuple[Answer, str], ...] = (
    ("shared", "Use its engine: one model in memory, one cache for both"),
    ("own", "Load a model here"),
    ("always shared", "Use it, now and whenever one runs"),
    ("always own", "Load a model here, now and always"),
)


@dataclass(frozen=True, slots=True)
class EngineQuestion:
    """What the person is asked at the start."""

    server: RunningServer
    wanted_model: str

    @property
    def words(self) -> str:
        words = f"{self.server.words} has {self.server.model} loaded."
        if not self.server.has_model(self.wanted_model):
            words += f" (Here it would be {self.wanted_model}.)"
        return f"{words} Which engine shall answer?"


class EngineChoice:
    """Decides once, at the start; what was remembered counts where the command line says `auto`.

    server: whose engine is used; None for one of our own, and before it is decided.
    """

    def __init__(self, mode: EngineMode, model: str, path: Path) -> None:
        """model: what would be loaded here. path: where the choice is remembered."""
        self._mode = mode
        self._model = model
        self._path = path
        self._found: RunningServer | None = None
        self.server: RunningServer | None = None

    def look(self) -> EngineQuestion | None:
        """Looks for a server; gives a question where the person must decide. Takes a moment.

        Raises EngineUnavailable where a shared engine was asked for and there is none.
        """
        wanted = self._wanted()
        if wanted is EngineMode.OWN:
            return None
        from paged_chat.app.api.running_server import NO_SERVER, server_for  # on the thread, behind the first frame

        self._found = server_for(self._model)
        if self._found is None:
            if self._mode is EngineMode.SHARED:
                raise EngineUnavailable(NO_SERVER)
            return None
        if wanted is EngineMode.AUTO:
            return EngineQuestion(self._found, self._model)
        # Without being asked, a person gets another model only if they said so on this command line.
        if self._mode is EngineMode.SHARED or self._found.has_model(self._model):
            self.server = self._found
        return None

    def answer(self, answer: str | None) -> None:
        """What the person chose of CHOICES; None is our own."""
        which = (answer or "own").removeprefix("always ")
        if answer is not None and answer != which:
            # Where it can't be kept, it is asked again.
            with contextlib.suppress(ExportRefused), new_file(self._path, overwrite=True) as out:
                out.write(f"{which}\n")
        self.server = self._found if which == "shared" else None

    def forget(self) -> None:
        """The next start asks."""
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)

    def _wanted(self) -> EngineMode:
        if self._mode is not EngineMode.AUTO:
            return self._mode
        try:
            return EngineMode(self._path.read_text(encoding="utf-8").strip())
        except (OSError, ValueError):  # nothing is remembered, or nothing that can be read
            return EngineMode.AUTO
