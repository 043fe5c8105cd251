"""The chats, pinned ones first; those in which a reply is being written are marked."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rich.cells import cell_len, set_cell_size
from rich.text import Text
from textual.events import Focus
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from paged_chat.app.chats import Chat

from ..messages import ChatChosen
from ..plain_text import plain

ROOM = 20  # columns for a title, as wide as paged_chat.tcss makes the list, beside the mark and the scroll bar


class ChatList(OptionList):
    """Highlighting looks, Enter opens."""

    def __init__(self) -> None:
        super().__init__(id="chats", markup=False)
        self.border_title = "Chats"
        self._drawn: list[tuple[str, str]] = []

    def show(self, chats: Sequence[Chat], open_id: str | None, running_ids: Collection[str]) -> None:
        """Draws the list, unless it is as it was."""
        drawn = [(chat.id, _words(chat, chat.id == open_id, chat.id in running_ids)) for chat in chats]
        if drawn == self._drawn:
            return
        is_open_new = open_id is not None and self._open_id() != open_id
        highlighted = None if self.highlighted is None else self.get_option_at_index(self.highlighted).id
        self._drawn = drawn
        self.clear_options()
        self.add_options(Option(Text(words, no_wrap=True, overflow="ellipsis"), id=chat_id) for chat_id, words in drawn)
        ids = [chat_id for chat_id, _ in drawn]
        wanted = open_id if is_open_new or highlighted not in ids else highlighted
        if wanted in ids:
            self.highlighted = ids.index(wanted)

    def on_focus(self, event: Focus) -> None:
        if self.highlighted is None and self.option_count:
            self.highlighted = 0

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        if event.option_id is not None:
            self.post_message(ChatChosen(event.option_id))

    def _open_id(self) -> str | None:
        return next((chat_id for chat_id, words in self._drawn if words.startswith("▸")), None)


def _words(chat: Chat, is_open: bool, is_running: bool) -> str:
    marks = []
    if is_running:
        marks.append("…")
    if chat.is_pinned:
        marks.append("pin")
    if chat.is_temporary:
        marks.append("temporary")
    if chat.is_archived:
        marks.append("archived")
    return f"{'▸' if is_open else ' '} {_with_marks(plain(chat.title), ' '.join(marks))}"


def _with_marks(title: str, marks: str) -> str:
    """The marks stand at the right, whatever the title's length: it gives way."""
    if not marks:
        return title  # cut where it is drawn
    room = ROOM - cell_len(marks) - 1
    cut = title if cell_len(title) <= room else set_cell_size(title, room - 1) + "…"
    return f"{set_cell_size(cut, room)} {marks}"
