"""What stands where there is no conversation yet."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from paged_chat.app.service.chat_events import EngineStatus

from ..messages import PromptSent
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

    def show(self, status: EngineStatus | None) -> None:
        self.query_one(".engine", Static).update("" if _is_ready(status) else f"{engine_words(status)} …")

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.post_message(PromptSent(SUGGESTIONS[event.option_index]))


def _is_ready(status: EngineStatus | None) -> bool:
    return status is not None and status.phase == "ready"
