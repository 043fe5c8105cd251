"""The top line: the chat's title on the left, the model and how it draws on the right."""

from __future__ import annotations

from rich.cells import cell_len, set_cell_size
from textual.widgets import Static

from paged_chat.app.chats import SamplingParams

from ..plain_text import plain


class TitleLine(Static):
    """One line, whatever the width: the title gives way first."""

    DEFAULT_CSS = """
    TitleLine { height: 1; padding: 0 1; background: $panel; color: $foreground; text-style: bold; }
    """

    def __init__(self) -> None:
        super().__init__("", markup=False)
        self._title, self._right = "", ""

    def show(self, title: str, engine: str, sampling: SamplingParams | None) -> None:
        """engine: how it stands, in words. sampling: the chat's; None before there are any."""
        self._title = plain(title)
        words = [engine]
        if sampling is not None:
            words.append(f"temp {sampling.temperature:g}")
            if sampling.is_beam_search:
                words.append(f"beams {sampling.beam_width}")
            if sampling.n > 1:
                words.append(f"n {sampling.n}")
            if sampling.seed is not None:
                words.append(f"seed {sampling.seed}")
        self._right = "  ".join(words)
        self._draw()

    def on_resize(self) -> None:
        self._draw()

    def _draw(self) -> None:
        width = self.content_size.width
        left = f"paged-chat  {self._title}"
        room = max(0, width - cell_len(self._right) - 2)
        if cell_len(left) > room:
            left = set_cell_size(left, max(0, room - 1)) + "…"
        self.update(set_cell_size(left, max(0, width - cell_len(self._right))) + self._right)
