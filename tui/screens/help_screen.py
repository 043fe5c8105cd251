"""Every key and every command, as they are now."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from rich.console import Group
from rich.style import Style
from rich.table import Table
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from paged_chat.app.cache_view.block_view import BlockState

from ..actions import ACTIONS, Action, message_binding_id
from ..slash_commands import COMMANDS

HEADING = Style(bold=True, underline=True)
BOLD = Style(bold=True)


class HelpScreen(ModalScreen[None]):
    """Keys, commands, and what the cache's letters mean."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,f1,q", "dismiss(None)", "back")]

    def __init__(self, keymap: Mapping[str, str], keymap_path: Path) -> None:
        super().__init__(classes="dialog wide")
        self._keymap, self._keymap_path = keymap, keymap_path

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="box"):
            yield Static(Group(*self._parts()))

    def _parts(self) -> Iterator[Text | Table]:
        yield Text("Keys", HEADING)
        yield Text("those that work everywhere, then those on a selected message (alt+up selects one)\n")
        yield columns((20, 9), (self._row(action) for action in ACTIONS))
        yield Text.assemble("\nKeymap file: ", (str(self._keymap_path), BOLD))
        yield Text("has every name in it; changes count from the next start on\n")
        yield Text("Commands in the prompt\n", HEADING)
        commands = [(f"/{command.name} {command.argument}", command.title) for command in COMMANDS]
        yield columns((22,), [*commands, ("@file", "Attach a text file")])
        yield Text("\nThe cache\n", HEADING)
        yield columns((2, 8), ((state.look.letter, str(state), state.look.meaning) for state in BlockState))

    def _row(self, action: Action) -> tuple[str, ...]:
        """Its keys everywhere, its keys on a message, what it does."""
        keys = self._keymap.get(action.name, action.keys)
        own = self._keymap.get(message_binding_id(action.name), action.message_keys)
        return keys.replace(",", ", "), own.replace(",", ", "), action.title


def columns(widths: Sequence[int], rows: Iterable[Sequence[str]]) -> Table:
    """Columns of these widths and a last one, whose lines are broken in it, not below the others."""
    table = Table.grid(padding=(0, 1), pad_edge=False)
    for width in widths:
        table.add_column(width=width)
    table.add_column()
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table
