"""How far a beam search has come, asked for while it goes on: it says nothing by itself before its end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING

from paged_chat.engine.request import BeamPreview

from ..engine_query import engine_query
from .served_engine import ServedEngine

if TYPE_CHECKING:
    from paged_chat.engine import Engine

PAUSE_S = 0.2


@engine_query
def beam_preview(engine: Engine, request_id: str) -> BeamPreview | None:
    """None before a search's first step, and after its end."""
    return next((preview for preview in engine.beam_previews() if preview.request_id == request_id), None)


class SearchWatch:
    """Asks after one search until it is stopped or the engine is gone; never has two questions in the inbox."""

    def __init__(self, served: ServedEngine, request_id: str, on_preview: Callable[[BeamPreview], None]) -> None:
        """`on_preview` is called on the engine's thread, with each preview that is new."""
        self._served = served
        self._request_id = request_id
        self._on_preview = on_preview
        self._newest: BeamPreview | None = None
        self._is_stopped = False
        self._wait()

    def stop(self) -> None:
        """It asks no more."""
        self._is_stopped = True

    def _wait(self) -> None:
        timer = threading.Timer(PAUSE_S, self._ask)
        timer.daemon = True
        timer.start()

    def _ask(self) -> None:
        if not self._is_stopped:
            self._served.call(beam_preview.ask(self._request_id)).add_done_callback(self._take)

    def _take(self, answered: Future[BeamPreview | None]) -> None:
        if self._is_stopped or answered.exception() is not None:
            return
        preview = answered.result()
        if preview is not None and preview != self._newest:
            self._newest = preview
            self._on_preview(preview)
        self._wait()
