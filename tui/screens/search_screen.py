"""Search in titles and messages of all chats, as it is typed."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from rich.style import Style
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Label, OptionList
from textual.widgets.option_list import Option

from paged_chat.app.errors import PagedChatError

from ..notices import show_error
from ..plain_text import PICTURES, plain
from ..widgets.keys_in_order import LineField

if TYPE_CHECKING:
    from paged_chat.app.service.chat_service import ChatService
    from paged_chat.app.store.chat_search import SearchHit

FOUND = Style(bold=True, underline=True)


class SearchScreen(ModalScreen["SearchHit | None"]):
    """Gives the place that was chosen."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "back"),
        Binding("down", "move(1)", "next", show=False, priority=True),
        Binding("up", "move(-1)", "previous", show=False, priority=True),
    ]

    def __init__(self, service: ChatService, query: str = "") -> None:
        super().__init__(classes="dialog wide")
        self._service, self._first_query = service, query
        self._hits: list[SearchHit] = []

    def compose(self) -> ComposeResult:
        with Vertical(classes="box"):
            yield LineField(self._first_query, placeholder="Search all chats")
            yield OptionList(markup=False)
            yield Label("", classes="hint", markup=False)

    def on_mount(self) -> None:
        self._search(self._first_query)

    def on_input_changed(self, event: Input.Changed) -> None:
        self._search(event.value)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self._choose(self.query_one(OptionList).highlighted)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self._choose(event.option_index)

    def action_move(self, direction: int) -> None:
        results = self.query_one(OptionList)
        if self._hits:
            results.highlighted = ((results.highlighted or 0) + direction) % len(self._hits)

    def _choose(self, place: int | None) -> None:
        if place is not None and place < len(self._hits):
            self.dismiss(self._hits[place])

    def _search(self, query: str) -> None:
        try:
            self._hits = self._service.search(query) if query.strip() else []
        except PagedChatError as error:
            self._hits = []
            show_error(self, error)
        results = self.query_one(OptionList)
        results.clear_options()
        results.add_options(Option(_line(hit)) for hit in self._hits)
        if self._hits:
            results.highlighted = 0
        words = f"{len(self._hits)} found: Enter opens" if self._hits else "nothing found" if query.strip() else ""
        self.query_one(".hint", Label).update(words)


def _line(hit: SearchHit) -> Text:
    line = Text(no_wrap=True, overflow="ellipsis")
    if hit.message_id is not None:
        line.append(f"{plain(hit.chat.title)}: ", Style(dim=True))
    snippet = Text(hit.snippet.translate(PICTURES))
    for start, end in hit.highlights:
        snippet.stylize(FOUND, start, end)
    return line + snippet
