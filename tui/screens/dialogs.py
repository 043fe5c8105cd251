"""Small questions: a line of text, one of a list, yes or no. Esc always means no answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Label, OptionList
from textual.widgets.option_list import Option

from ..widgets.keys_in_order import LineField


class TextDialog(ModalScreen[str | None]):
    """Asks for a line of text."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", "back")]

    def __init__(self, question: str, text: str = "") -> None:
        super().__init__(classes="dialog")
        self._question, self._text = question, text

    def compose(self) -> ComposeResult:
        with Vertical(classes="box"):
            yield Label(self._question, markup=False)
            yield LineField(self._text)
            yield Label("Enter takes it, Esc leaves it as it was", classes="hint")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.dismiss(event.value)


class ChoiceDialog(ModalScreen[str | None]):
    """Asks for one of a list; each choice is its id and the line that is shown."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", "back")]

    def __init__(self, question: str, choices: Sequence[tuple[str, str]], chosen: str | None = None) -> None:
        super().__init__(classes="dialog")
        self._question, self._choices, self._chosen = question, choices, chosen

    def compose(self) -> ComposeResult:
        with Vertical(classes="box"):
            yield Label(self._question, markup=False)
            yield OptionList(*(Option(words, id=choice_id) for choice_id, words in self._choices), markup=False)
            yield Label("Enter takes it, Esc leaves it as it was", classes="hint")

    def on_mount(self) -> None:
        ids = [choice_id for choice_id, _ in self._choices]
        self.query_one(OptionList).highlighted = ids.index(self._chosen) if self._chosen in ids else 0

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(event.option_id)


class ConfirmDialog(ModalScreen[bool]):
    """Asks before something that can't be undone."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "dismiss(True)", "yes"),
        Binding("n,escape", "dismiss(False)", "no"),
    ]

    def __init__(self, question: str) -> None:
        super().__init__(classes="dialog")
        self._question = question

    def compose(self) -> ComposeResult:
        with Vertical(classes="box"):
            yield Label(self._question, markup=False)
            yield Label("y: yes   n or Esc: no", classes="hint")
