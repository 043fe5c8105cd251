"""Every key and every command, as they are now."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from rich.style import Style
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from paged_chat.app.cache_view.block_view import BlockState

from ..actions import ACTIONS, message_binding_id
from ..slash_commands import COMMANDS

HEADING = Style(bold=True, underline=True)


class HelpScreen(ModalScreen[None]):
    """Keys, commands, and what the cache's letters mean."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,f1,q", "dismiss(None)", "back")]

    def __init__(self, keymap: Mapping[str, str], keymap_path: Path) -> None:
        super().__init__(classes="dialog wide")
        self._keymap, self._keymap_path = keymap, keymap_path

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="box"):
            yield Static(self._text(), markup=False)

    def _text(self) -> Text:
        text = Text()
        text.append("Keys\n", HEADING)
        text.append("those that work everywhere, then those on a selected message (alt+up selects one)\n\n")
        for action in ACTIONS:
            keys = self._keymap.get(action.name, action.keys).replace(",", ", ")
            own = self._keymap.get(message_binding_id(action.name), action.message_keys).replace(",", ", ")
            text.append(f"{keys:<20} {own:<9} {action.title}\n")
        text.append("\n")
        text.append("Keymap file: ")
        text.append(f"{self._keymap_path}\n", Style(bold=True))
        text.append("has every name in it; changes count from the next start on\n\n")
        text.append("Commands in the prompt\n\n", HEADING)
        for command in COMMANDS:
            text.append(f"{'/' + command.name + ' ' + command.argument:<22} {command.title}\n")
        text.append(f"{'@file':<22} Attach a text file\n\n")
        text.append("The cache\n\n", HEADING)
        for state in BlockState:
            text.append(f"{state.look.letter}  {state:<8} {state.look.meaning}\n")
        return text
