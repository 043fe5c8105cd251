"""The line under the prompt: what is attached, what sending would cost, how much of the window is used."""

from __future__ import annotations

from rich.cells import cell_len
from textual.content import Content
from textual.widgets import Static

from paged_chat.app.service.send_plan import SendPlan


class Meter(Static):
    """Words on the left, tokens of the window on the right."""

    DEFAULT_CSS = """
    Meter { height: auto; min-height: 1; max-height: 3; color: $text-muted; padding: 0 1; }
    """

    def __init__(self) -> None:
        super().__init__("", id="meter", markup=False)
        self._left, self._right = "", ""

    def show(self, left: str = "", *, plan: SendPlan | None = None) -> None:
        """With a plan also how full the window would be; without one that stays as it was."""
        self._left = left
        if plan is not None:
            self._right = f"{plan.num_prompt_tokens:,} / {plan.window:,}"
        self._draw()

    def clear(self) -> None:
        """For a chat that doesn't exist yet, of which nothing is written."""
        self._left = self._right = ""
        self._draw()

    def on_resize(self) -> None:
        self._draw()

    def _draw(self) -> None:
        """Words that don't fit beside the figure go on in lines of their own."""
        width = self.content_size.width
        first, *more = Content(self._left).wrap(max(1, width - cell_len(self._right) - 1)) or [Content("")]
        first = first.pad_right(max(0, width - first.cell_length - cell_len(self._right))) + self._right
        self.update(Content("\n").join([first, *more]))
