"""Several versions of one message side by side, or one at a time where the terminal is narrow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.events import Resize
from textual.widgets import Static

from paged_chat.app.cache_view.sharing import sharing_of_replies
from paged_chat.app.chats import Message
from paged_chat.app.comparison.comparison import name_of
from paged_chat.app.comparison.word_diff import Span
from paged_chat.app.comparison.words import diff_legend
from paged_chat.app.service.chat_events import ReplyUpdate

from ..key_names import key_of
from ..messages import MessageSelected
from ..plain_text import plain
from .message_view import MessageView

MIN_COLUMN_WIDTH = 25  # three of them beside each other at 80 columns
GOES_ON = "▸"


class ReplyGroup(Vertical):
    """The siblings of a message; one of them is marked, which the next message goes on from."""

    def __init__(self, messages: Sequence[Message], chosen: int = 0) -> None:
        """chosen: the place of the one that is marked, and seen where there is room for one at a time."""
        super().__init__(classes="reply-group")
        self._messages = list(messages)
        self._chosen = self._shown = chosen
        self._reference_id: int | None = None

    def compose(self) -> ComposeResult:
        with Horizontal(classes="columns"):
            for place, message in enumerate(self._messages):
                yield MessageView(message, place, len(self._messages))
        yield Static("", classes="hint", markup=False)  # below: there a person is who has read them

    @property
    def message_ids(self) -> list[int]:
        return [message.id for message in self._messages]

    @property
    def shown_view(self) -> MessageView:
        """The one that was looked at last."""
        return self.views[self._shown]

    @property
    def views(self) -> list[MessageView]:
        return list(self.query(MessageView))

    def on_resize(self, event: Resize) -> None:
        self._arrange()

    def on_mount(self) -> None:
        self._arrange()

    async def grow(self, update: ReplyUpdate) -> None:
        for view in self.views:
            if view.message.id == update.message_id:
                await view.grow(update)

    async def replace(self, messages: Sequence[Message], chosen: int) -> None:
        """Shows the same siblings as the store has them now."""
        self._messages = list(messages)
        self._chosen = chosen
        for place, (view, message) in enumerate(zip(self.views, messages, strict=True)):
            await view.replace(message, place, len(messages))
        self._arrange()

    async def show_diff(self, reference_id: int | None, spans: Mapping[int, Sequence[Span]]) -> None:
        """How each reply differs from the one `reference_id`, in the place of its text; None shows the texts."""
        self._reference_id = reference_id
        for view in self.views:
            own = spans.get(view.message.id) if view.message.id != reference_id else None
            await view.show_diff(own)
        self._show_words()

    def step(self, direction: int) -> MessageView:
        """Shows the next one to the right (1) or to the left (-1)."""
        self._shown = min(max(self._shown + direction, 0), len(self._messages) - 1)
        self._arrange()
        return self.shown_view

    def on_message_selected(self, event: MessageSelected) -> None:
        self._shown = self.message_ids.index(event.message_id)
        self._arrange()

    @property
    def _is_tabbed(self) -> bool:
        return self.size.width // MIN_COLUMN_WIDTH < len(self._messages)

    def _arrange(self) -> None:
        is_tabbed = self._is_tabbed
        for place, view in enumerate(self.views):
            view.display = not is_tabbed or place == self._shown
            name = plain(name_of(view.message, place))
            is_chosen = place == self._chosen
            view.border_title = Content(f"{GOES_ON} {name}" if is_chosen else name)
            view.border_subtitle = f"{GOES_ON} goes on" if is_chosen else ""  # of a long one the title isn't in view
        self._show_words()

    def _show_words(self) -> None:
        """What can be done with them, and what they share."""
        diff_key = key_of(self, "toggle_diff")
        if self._reference_id is None:
            words = f"{key_of(self, 'previous_sibling')} {key_of(self, 'next_sibling')}: which one goes on ({GOES_ON})"
            words += f" · {key_of(self, 'compare')}: it alone · {diff_key}: what differs"
        else:
            place = self.message_ids.index(self._reference_id)
            name = name_of(self._messages[place], place)
            words = f"{diff_legend(plain(name))}; {diff_key} ends it"
        if self._is_tabbed:
            marks = "  ".join(f"[{i + 1}]" if i == self._shown else f" {i + 1} " for i in range(len(self._messages)))
            words = f"{marks}\n{words}"
        sharing = sharing_of_replies(self._messages)
        self.query_one(".hint", Static).update(words if sharing is None else f"{words}\n{sharing}")
