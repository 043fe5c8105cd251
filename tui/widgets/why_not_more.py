"""Under the cache's log: why a reply's prompt found no more, of the selected reply or of the newest."""

from __future__ import annotations

from textual.content import Content
from textual.widgets import Static

from paged_chat.app.transcript.miss_reason import MissReason

QUIET = "$text-muted"


class WhyNotMore(Static):
    """Takes no room where nothing is known."""

    DEFAULT_CSS = """
    WhyNotMore { height: auto; max-height: 10; padding: 1 0 0 0; }
    """

    def __init__(self) -> None:
        super().__init__("", markup=False)
        self._shown: MissReason | None = None
        self.display = False

    def show(self, reason: MissReason | None) -> None:
        if reason == self._shown:
            return
        self._shown = reason
        self.display = reason is not None
        if reason is not None:
            figures = Content.styled(reason.figures_words, QUIET)
            self.update(Content.assemble(("why not more?\n", "bold"), f"{reason}\n", figures))
