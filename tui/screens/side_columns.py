"""The columns beside the conversation, chats and cache: there or not, as the width and the person have it."""

from __future__ import annotations

from textual.events import Resize

from ..widgets.cache_panel import CachePanel
from ..widgets.chat_list import ChatList
from .service_screen import ServiceScreen

WIDE = 110  # columns of the terminal from which they stand beside the conversation; narrower, they lie over it
LOW = 24  # rows of the terminal below which what can be spared goes

Column = type[ChatList] | type[CachePanel]


class SideColumns(ServiceScreen):
    """The chat screen's part that shows and hides them."""

    def __init__(self) -> None:
        super().__init__()
        self._wants: dict[Column, bool] = {}  # what the person has said; else as the width has it

    def on_resize(self, event: Resize) -> None:
        self.arrange_columns()

    def action_toggle_chats(self) -> None:
        self._toggle(ChatList, other=CachePanel)
        chats = self.query_one(ChatList)
        (chats if chats.display else self.prompt).focus()

    def action_toggle_cache(self) -> None:
        self._toggle(CachePanel, other=ChatList)
        if not self.query_one(CachePanel).display:
            self.prompt.focus()

    def is_over(self, column: Column) -> bool:
        """Whether it covers the conversation."""
        return self.query_one(column).display and not self._is_wide

    def put_back(self, *columns: Column) -> None:
        """From now on they are there as the width has it."""
        for column in columns:
            self._wants.pop(column, None)
        self.arrange_columns()

    def arrange_columns(self) -> None:
        is_wide = self._is_wide
        self.set_class(is_wide, "wide")
        self.set_class(self.size.height < LOW, "low")
        for column in (ChatList, CachePanel):
            self.query_one(column).display = self._wants.get(column, is_wide)
        self.query_one(CachePanel).look_again()

    def _toggle(self, column: Column, other: Column) -> None:
        """Where they lie over the conversation, one at a time."""
        is_shown = not self.query_one(column).display
        if is_shown == self._is_wide:
            self._wants.pop(column, None)  # one that was looked at in a narrow terminal isn't missing in a wide one
        else:
            self._wants[column] = is_shown
        if is_shown and not self._is_wide and self._wants.get(other):
            del self._wants[other]
        self.arrange_columns()

    @property
    def _is_wide(self) -> bool:
        return self.size.width >= WIDE
