"""Where a beam search stands, on one line of stderr that goes away with its end."""

from __future__ import annotations

import shutil
import sys

from paged_chat.engine.request import BeamPreview

from ..cache_view.search_words import search_words
from ..terminal_text import harmless

_CLEAR = "\r\x1b[K"


class SearchLine:
    """Writes only where stderr is a terminal: what it shows may still change, so it belongs to no reply."""

    def __init__(self) -> None:
        self._is_visible = False

    def show(self, preview: BeamPreview) -> None:
        if not sys.stderr.isatty():
            return
        line = harmless(" ".join(search_words(preview).split()))
        sys.stderr.write(_CLEAR + line[: shutil.get_terminal_size().columns - 1])
        sys.stderr.flush()
        self._is_visible = True

    def clear(self) -> None:
        if self._is_visible:
            sys.stderr.write(_CLEAR)
            sys.stderr.flush()
            self._is_visible = False
