"""A model that isn't on this machine yet is downloaded while another one goes on answering."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from paged_chat.engine.errors import PagedChatError
from paged_chat.engine.progress import LoadProgress, OnProgress

from ..errors import words_of
from .chat_events import ModelFetch

logger = logging.getLogger(__name__)

FetchModel = Callable[[OnProgress], None]
FindModel = Callable[[str], FetchModel | None]
"""Looks for a model before the one that answers has to go: gives what downloads it, None where it is here and sound.

Raises what keeps it from being loaded, such as ModelNotFound. A download also looks at what has come.
"""


def take_any_name(model: str) -> None:
    """For engines that make a model of any name."""


class ModelFetcher:
    """Downloads the model that was chosen; any thread may call any method.

    Always: only the newest choice is told of and taken. What was chosen before it is downloaded to its end, and left.
    """

    def __init__(self, show: Callable[[ModelFetch | None], None]) -> None:
        """show: hears how it goes; None when there is nothing more to say."""
        self._show = show
        self._lock = threading.Lock()
        self._num_choices = 0

    def begin(self, model: str, fetch: FetchModel, take: Callable[[], None]) -> None:
        """In the background: downloads it, then calls `take`, whose refusal is told as that of the download is."""
        choice = self.forget()

        def tell(told: ModelFetch | None) -> None:
            with self._lock:
                if choice == self._num_choices:
                    self._show(told)

        def show_progress(progress: LoadProgress) -> None:
            tell(ModelFetch(model=model, progress=progress))

        def run() -> None:
            try:
                fetch(show_progress)
                if choice == self._num_choices:
                    take()
            except Exception as error:
                if not isinstance(error, PagedChatError):
                    logger.exception("a model could not be fetched; the other one goes on answering")
                tell(ModelFetch(model=model, error=words_of(error)))
            else:
                tell(None)

        tell(ModelFetch(model=model))
        threading.Thread(target=run, name="paged-chat model download", daemon=True).start()

    def forget(self) -> int:
        """Another choice is made: what was chosen before it is told of no more. Gives the number of the new one."""
        with self._lock:
            self._num_choices += 1
            self._show(None)
            return self._num_choices
