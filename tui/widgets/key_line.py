"""The last line of the screen: the keys that matter where the focus is; they may be clicked, too."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import ClassVar

from textual.content import Content
from textual.reactive import reactive
from textual.style import Style
from textual.widget import Widget

from ..actions import ACTIONS, BY_NAME, Action
from ..key_names import key_of
from .message_view import MessageView

ALWAYS = ("show_help", "show_palette")  # on the right, whatever else there is room for


class KeyLine(Widget):
    """Of everywhere, or of the selected message while single keys act on it: what fits, the first ones first.

    While a reply is being written, the key that stops it is the first of all.
    """

    is_writing = reactive(False)

    COMPONENT_CLASSES: ClassVar[set[str]] = {"keys--key"}
    DEFAULT_CSS = """
    KeyLine {
        height: 1;
        padding: 0 1;
        background: $panel;
        color: $foreground;
        link-style: none;
        link-color: $foreground;
        & > .keys--key { color: $text-accent; text-style: bold; }
    }
    """

    def on_mount(self) -> None:
        self.screen.bindings_updated_signal.subscribe(self, lambda _: self.refresh())

    def render(self) -> Content:
        right = Content("  ").join(self._hint([BY_NAME[name]]) for name in ALWAYS)
        room = self.size.width - right.cell_length
        line = Content("")
        for hint in self._hints():
            longer = line + hint + "  "
            if longer.cell_length > room:
                break
            line = longer
        return line + " " * max(0, room - line.cell_length) + right

    def _hints(self) -> Iterator[Content]:
        on_message = isinstance(self.screen.focused, MessageView)
        if on_message:
            yield self._key("stop") + " prompt"
            actions = [action for action in ACTIONS if action.message_keys and action.label]
        else:
            actions = [action for action in ACTIONS if action.in_line]
            # Sorting keeps the order of all others.
            actions.sort(key=lambda action: not (self.is_writing and action.name == "stop"))
        # Those of one label are a pair, such as left and right.
        for _, pair in groupby(actions, key=lambda action: action.label):
            yield self._hint(list(pair), on_message=on_message)

    def _hint(self, actions: list[Action], *, on_message: bool = False) -> Content:
        keys = Content("").join(self._key(action.name, on_message=on_message) for action in actions)
        pressing = Style.from_meta({"@click": f"screen.{actions[-1].name}"})
        return keys + Content.styled(f" {actions[-1].label}", pressing)

    def _key(self, name: str, *, on_message: bool = False) -> Content:
        return Content.styled(key_of(self, name, on_message=on_message), self.get_visual_style("keys--key"))
