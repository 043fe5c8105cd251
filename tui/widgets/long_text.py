"""What a person wrote: shown as it is, folded where it is long."""

from __future__ import annotations

from textual.widgets import Static

from paged_chat.app.counted import counted

from ..plain_text import plain

MAX_LINES = 14
MAX_CHARACTERS = 1_200


class LongText(Static):
    """Plain text, no Markdown; `toggle` unfolds it."""

    DEFAULT_CSS = """
    LongText { width: 1fr; height: auto; }
    """

    def __init__(self, text: str) -> None:
        self._text = plain(text)
        self._is_folded = self.is_long
        super().__init__(self._shown(), markup=False)

    @property
    def is_long(self) -> bool:
        return len(self._text) > MAX_CHARACTERS or self._text.count("\n") >= MAX_LINES

    def toggle(self) -> None:
        self._is_folded = self.is_long and not self._is_folded
        self.update(self._shown())

    def _shown(self) -> str:
        if not self._is_folded:
            return self._text
        head = "\n".join(self._text.splitlines()[:MAX_LINES])[:MAX_CHARACTERS].rstrip()
        num_more = len(self._text) - len(head)
        return f"{head}\n… {counted(num_more, 'more character')}"
