"""What stands where there is no conversation yet."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from paged_chat.app.service.chat_events import EngineStatus

from ..messages import PromptSent
from ..plain_text import plain
from .engine_words import engine_words

WHAT = "Chat with a model on this machine. What it has read once is never computed again."
SUGGESTIONS = (
    "Explain in three sentences what a KV cache is.",
    "Plan three quiet days in Lisbon, no museums.",
    "Write a Python function that finds the longest common prefix of two lists.",
)


class EmptyState(Vertical):
    """What this is, three prompts to begin with, and how far the model has come."""

    def compose(self) -> ComposeResult:
        yield Static(WHAT, classes="what")
        yield OptionList(*(Option(text) for text in SUGGESTIONS), markup=False)
        yield Static("", classes="engine", markup=False)

    def show(self, status: EngineStatus | None, why_closed: str | None = None) -> None:
        """why_closed: why there are no chats, where they couldn't be opened."""
        fault = why_closed or (status.error if status is not None and status.phase == "failed" else None)
        self.query_one(OptionList).display = fault is None  # nobody would answer, and a long reason needs the room
        is_ready = status is not None and status.phase == "ready"
        words = self.query_one(".engine", Static)
        words.set_class(fault is not None, "fault")
        words.update(plain(fault) if fault is not None else "" if is_ready else f"{engine_words(status)} …")

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.post_message(PromptSent(SUGGESTIONS[event.option_index]))
