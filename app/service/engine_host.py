"""The engine that answers: opened in the background, watched while it loads, exchanged for another model's."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TypeVar

from paged_chat.engine.config import EngineConfig
from paged_chat.engine.errors import PagedChatError
from paged_chat.engine.progress import LoadProgress, OnProgress

from ..engine_query import Query
from ..errors import EngineUnavailable, service_closed, words_of
from ..promises import chained
from ..transcript.chat_model import ChatModel
from ..transcript.transcript import Transcript
from .chat_events import EnginePhase, EngineStatus, ModelFetch
from .engine_guests import EngineGuests
from .served_engine import EngineServer, ModelFigures, OpenEngine, ServedEngine, model_figures

CLOSE_S = 0.5  # for the step that is being computed

logger = logging.getLogger(__name__)

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class LoadedEngine:
    """An engine that is ready.

    model: what it was asked for as, which is how replies name it.
    engine: its text functions, which may be used from any thread; all else goes through `served`.
    transcript: makes its prompts.
    loaded_at: from then on it can have read anything.
    """

    model: str
    served: ServedEngine
    engine: ChatModel
    transcript: Transcript
    loaded_at: datetime


class EngineHost:
    """Holds one engine at a time; methods return at once, loading and closing go on in the background.

    Always: `loaded` is the future of the engine that `status` speaks of.

    guests: other programs that use it, whatever model it has.
    """

    def __init__(
        self,
        open_engine: OpenEngine,
        config: EngineConfig,
        on_change: Callable[[EngineStatus], None],
        server: EngineServer | None = None,
    ) -> None:
        """Begins to load.

        on_change: hears of each new status, on any thread.
        server: whose engine, and so whose model, is used until another one is chosen; None opens one here.
        """
        self.guests = EngineGuests()
        self._open_engine = open_engine
        self._listeners = [on_change]
        self._lock = threading.Lock()
        self._config = _config_of(config, server)
        self._server = server
        self._is_closed = False
        self._served: ServedEngine | None = None
        self._fetch: ModelFetch | None = None
        self._loaded: Future[LoadedEngine] = Future()
        self._status = self._status_of("loading")
        self._exchange(None, self._loaded)

    @property
    def status(self) -> EngineStatus:
        return replace(self._status, fetch=self._fetch)

    @property
    def config(self) -> EngineConfig:
        return self._config

    @property
    def loaded(self) -> Future[LoadedEngine]:
        """Holds the engine once it is ready, or EngineUnavailable with the reason why it never will be."""
        return self._loaded

    def check_usable(self) -> None:
        """Raises EngineUnavailable unless there is an engine, or one that loads."""
        if self._status.phase in ("failed", "closed"):
            raise EngineUnavailable(self._status.error or "")

    def call(self, query: Query[Result]) -> Future[Result]:
        """Runs on the engine's thread once it is loaded; raises EngineUnavailable where it never will be."""
        self.check_usable()
        return chained(self._loaded, lambda loaded: loaded.served.call(query))

    def watch(self, on_change: Callable[[EngineStatus], None]) -> Callable[[], None]:
        """One more listener hears of each new status, on any thread, until what this gives is called."""
        with self._lock:
            self._listeners.append(on_change)

        def unwatch() -> None:
            with self._lock:
                self._listeners.remove(on_change)

        return unwatch

    def switch(self, config: EngineConfig, server: EngineServer | None = None) -> None:
        """Closes the engine and opens another, or uses a server's; what the old one was doing ends."""
        with self._lock:
            if self._is_closed:
                raise service_closed()
            self._config, self._server = _config_of(config, server), server
            old, self._served = self._served, None
            before = self._loaded
            loaded: Future[LoadedEngine] = Future()
            self._loaded = loaded
        _refuse(before, EngineUnavailable(f"another model was chosen while {self._status.model} was loading"))
        self._set(loaded, self._status_of("loading"))
        self._exchange(old, loaded)

    def show_fetch(self, fetch: ModelFetch | None) -> None:
        """What is downloaded to take this model's place becomes a part of the status."""
        with self._lock:
            if fetch == self._fetch:
                return
            self._fetch = fetch
            listeners = list(self._listeners)
        self._tell(listeners)

    def close(self, timeout_s: float = CLOSE_S) -> None:
        """Waits so long for the engine's end; a step or a download that takes longer ends with the process."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            served, loaded = self._served, self._loaded
        error = service_closed()
        self._set(loaded, replace(self._status_of("closed"), error=str(error)))
        _refuse(loaded, error)
        if served is not None:
            closing = threading.Thread(target=served.close, name="paged-chat engine close", daemon=True)
            closing.start()
            closing.join(timeout_s)

    def _exchange(self, old: ServedEngine | None, loaded: Future[LoadedEngine]) -> None:
        """In the background: closing waits for a step, and opening imports torch."""

        config, server = self._config, self._server

        def open_engine(on_progress: OnProgress) -> ServedEngine:
            return self._open_engine(config, on_progress) if server is None else server.open(on_progress)

        def exchange() -> None:
            if old is not None:
                old.close()  # first, for two models may not fit the memory
            self._open(open_engine, loaded)

        threading.Thread(target=exchange, name="paged-chat model switch", daemon=True).start()

    def _open(self, open_engine: Callable[[OnProgress], ServedEngine], loaded: Future[LoadedEngine]) -> None:
        try:
            served = open_engine(lambda progress: self._show(loaded, progress))
        except Exception as error:
            self._fail(loaded, error)
            return
        with self._lock:
            is_wanted = self._loaded is loaded and not self._is_closed
            if is_wanted:
                self._served = served
        if not is_wanted:
            served.close()
            return

        def finish(answer: Future[ModelFigures]) -> None:
            if answer.exception() is not None:
                return  # it has ended, and that says why
            figures = answer.result()
            ready = replace(self._status_of("ready"), window=figures.max_model_len, load_s=figures.load_s)
            self._set(loaded, ready)
            with contextlib.suppress(InvalidStateError):  # refused meanwhile
                transcript = Transcript(served.engine, figures.max_model_len)
                # What a server's engine has read before is nothing that we know.
                loaded_at = datetime.now(UTC) if ready.server is None else datetime.min.replace(tzinfo=UTC)
                loaded.set_result(LoadedEngine(ready.model, served, served.engine, transcript, loaded_at))

        def note_end(ended: Future[None]) -> None:
            if (error := ended.exception()) is not None:
                self._fail(loaded, error)

        served.ended.add_done_callback(note_end)
        served.call(model_figures.ask()).add_done_callback(finish)

    def _show(self, loaded: Future[LoadedEngine], progress: LoadProgress) -> None:
        """Called by the loader, on the engine's thread; what it raises ends the loading."""
        if self._loaded is not loaded or self._is_closed:
            raise EngineUnavailable("this model isn't wanted any more")
        self._set(loaded, replace(self._status, progress=progress))

    def _fail(self, loaded: Future[LoadedEngine], error: BaseException) -> None:
        if not isinstance(error, PagedChatError):
            logger.error("the model could not be loaded", exc_info=error)
        reason = words_of(error)
        self._set(loaded, replace(self._status_of("failed"), error=reason))
        _refuse(loaded, EngineUnavailable(reason))

    def _status_of(self, phase: EnginePhase) -> EngineStatus:
        server = None if self._server is None else self._server.address
        return EngineStatus(phase=phase, model=self._config.model, server=server)

    def _set(self, loaded: Future[LoadedEngine], status: EngineStatus) -> None:
        """Unless another engine has taken the place of the one that this is about."""
        with self._lock:
            if self._loaded is not loaded or self._status.phase == "closed":
                return
            self._status = status
            listeners = list(self._listeners)
        self._tell(listeners)

    def _tell(self, listeners: Iterable[Callable[[EngineStatus], None]]) -> None:
        status = self.status
        for on_change in listeners:
            try:
                on_change(status)
            except Exception:
                logger.exception("a listener failed; the engine goes on")


def _config_of(config: EngineConfig, server: EngineServer | None) -> EngineConfig:
    return config if server is None else replace(config, model=server.model)


def _refuse(loaded: Future[LoadedEngine], error: EngineUnavailable) -> None:
    with contextlib.suppress(InvalidStateError):  # it was ready before, or refused
        loaded.set_exception(error)
