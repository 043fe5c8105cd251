"""The line under the prompt: what is attached, what sending would cost, how much of the window is used."""

from __future__ import annotations

from textual.widgets import Static

from paged_chat.app.service.send_plan import SendPlan


class Meter(Static):
    """Words on the left, tokens of the window on the right."""

    DEFAULT_CSS = """
    Meter { height: 1; color: $text-muted; padding: 0 1; }
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

    def show_new(self, left: str = "", *, num_tokens: int = 0) -> None:
        """For a chat that doesn't exist yet: how long its first message is."""
        self._left = left
        self._right = f"{num_tokens:,} token{'' if num_tokens == 1 else 's'}" if num_tokens else ""
        self._draw()

    def on_resize(self) -> None:
        self._draw()

    def _draw(self) -> None:
        width = self.content_size.width
        left = self._left
        room = width - len(self._right) - 1
        if len(left) > room:
            left = left[: max(0, room - 1)] + "…" if room > 1 else ""
        self.update(left.ljust(width - len(self._right)) + self._right)
