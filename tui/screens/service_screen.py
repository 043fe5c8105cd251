"""What every part of the chat screen stands on: the service, the chat that is shown, the message that is selected."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ParamSpec, TextIO, TypeVar

from textual.screen import Screen

from paged_chat.app.chats import Chat, Message, MessageRole, MessageTree, SamplingParams
from paged_chat.app.comparison.variant import Variant
from paged_chat.app.errors import PagedChatError
from paged_chat.app.service.chat_events import EngineStatus

from ..files import write_new
from ..key_names import key_of
from ..slash_commands import Call
from ..widgets.conversation import Conversation
from ..widgets.message_view import MessageView
from ..widgets.prompt import Prompt

if TYPE_CHECKING:
    from paged_chat.app.service.chat_service import ChatService

Params = ParamSpec("Params")
Result = TypeVar("Result")

WRITE_TOLD_AFTER_S = 1.0


class NotPossible(PagedChatError):
    """An action that makes no sense now; the message says what would."""


@dataclass(frozen=True, slots=True)
class Deletion:
    """Something that was deleted: words for it, how to bring it back, and which message it was; None is a chat."""

    words: str
    restore: Callable[[], Chat]
    message_id: int | None


class ServiceScreen(Screen[None]):
    """State of the chat screen, and what several kinds of actions need; the methods that raise here are theirs.

    why_closed: why the chats couldn't be opened; None while they are being opened, and once they are.
    chat: as it was read last; None while a new one has nothing in it yet and isn't stored.
    new_system_prompt, new_sampling: what was chosen for the new one meanwhile; None where nothing was.
    selected_id: the message that actions are about; None is the last one.
    compared_id: the message whose versions stand side by side.
    variants: settings under each of which the next message is asked.
    diff_reference_id: the reply from which those side by side are shown to differ.
    edited_id: the person's message whose new version is in the prompt.
    num_opened: how often another chat was opened, so that what took long can tell whether its chat is still shown.
    undo: what was deleted, the last one at the end.
    writing: held by what writes to the store, and by what must keep its place among that.
    """

    def __init__(self) -> None:
        super().__init__()
        self.service: ChatService | None = None
        self.why_closed: str | None = None
        self.chat: Chat | None = None
        self.messages = MessageTree(())
        self.is_new_temporary = False
        self.new_system_prompt: str | None = None
        self.new_sampling: SamplingParams | None = None
        self.num_opened = 0
        self._selected_id: int | None = None
        self.compared_id: int | None = None
        self.variants: list[Variant] = []
        self.diff_reference_id: int | None = None
        self.edited_id: int | None = None
        self.engine_status: EngineStatus | None = None
        self.undo: list[Deletion] = []
        self.writing = asyncio.Lock()
        self.making_chat = asyncio.Lock()

    # Widgets

    @property
    def conversation(self) -> Conversation:
        return self.query_one(Conversation)

    @property
    def prompt(self) -> Prompt:
        return self.query_one(Prompt)

    # What is shown

    @property
    def open_service(self) -> ChatService:
        """Only for what can't be reached before the store is open."""
        assert self.service is not None, "asked before the chats were opened"
        return self.service

    @property
    def path(self) -> list[Message]:
        return [] if self.chat is None else self.messages.path(self.chat.active_leaf_id)

    @property
    def system_prompt(self) -> str | None:
        """The chat's own, or what was chosen for one that isn't stored yet."""
        return self.new_system_prompt if self.chat is None else self.chat.system_prompt

    @property
    def sampling(self) -> SamplingParams:
        """The chat's; of one that isn't stored yet, what it begins with."""
        if self.chat is not None:
            return self.chat.sampling
        return self.new_sampling or self.open_service.default_sampling

    @property
    def selected_id(self) -> int | None:
        return self._selected_id

    @selected_id.setter
    def selected_id(self, message_id: int | None) -> None:
        self._selected_id = message_id
        self.conversation.mark(message_id)

    def view_in_focus(self) -> MessageView | None:
        """The message that an action is about: the selected one, else the last one that is shown."""
        selected = [view for view in self.conversation.views if view.message.id == self.selected_id]
        return next(iter(selected), self.conversation.last_view)

    def message_in_focus(self, role: MessageRole | None = None) -> Message | None:
        """As `view_in_focus`; with a role, the nearest message of it on the way to the root."""
        view = self.view_in_focus()
        if view is None or view.message.id not in self.messages:
            return None
        way = reversed(self.messages.path(view.message.id))
        return next((message for message in way if role in (None, message.role)), None)

    # What is stored

    async def write(self, call: Callable[Params, Result], *args: Params.args, **kwargs: Params.kwargs) -> Result:
        """Calls what writes to the store on a thread; only from actions `in_background`, so that nothing else waits.

        Another program may hold the database, and then a write takes seconds until it is done or raises StoreBusy.
        One goes after the other, in the order in which they were asked for.
        """
        async with self.writing:
            written = asyncio.ensure_future(asyncio.to_thread(call, *args, **kwargs))
            done, _ = await asyncio.wait([written], timeout=WRITE_TOLD_AFTER_S)
            if not done:
                self.notify(
                    "Storing takes long, another program may hold the chats: go on, you will be told if it fails."
                )
            return await written

    async def write_file(self, path: str, write: Callable[[TextIO], object], words: str) -> None:
        """Has a thread write a file that isn't there yet, and tells where it is, after `words`."""
        written = await asyncio.to_thread(write_new, path, write)
        self.notify(f"{words} {written}")

    async def ensure_chat(self) -> Chat:
        """The chat that is shown; a new one is made now if it is to hold something."""
        async with self.making_chat:  # two that need one at the same time get the same
            if self.chat is not None:
                return self.chat
            num_opened = self.num_opened
            chat = await self.write(
                self.open_service.create_chat,
                system_prompt=self.new_system_prompt,
                sampling=self.new_sampling,
                is_temporary=self.is_new_temporary,
            )
            if self.num_opened == num_opened:
                self.chat = chat
                self.follow_chat(chat.id)
            return chat

    def follow_chat(self, chat_id: str) -> None:
        """Begins to watch the chat."""
        raise NotImplementedError

    async def open_chat(self, chat_id: str | None) -> None:
        """Shows another chat; None is a new one."""
        raise NotImplementedError

    async def read_chat(self, chat_id: str) -> None:
        """Reads and draws the chat as it is now."""
        raise NotImplementedError

    def begin_edit(self, message_id: int, text: str) -> None:
        """Puts a message into the prompt; sending it makes a new version."""
        raise NotImplementedError

    async def run_command(self, call: Call) -> None:
        """Runs a command of the prompt with what stands behind it."""
        raise NotImplementedError

    async def show_rows(self) -> None:
        """Draws the path anew."""
        raise NotImplementedError

    async def show_diff(self) -> None:
        """Draws how the replies side by side differ, or the replies alone."""
        raise NotImplementedError

    def end_comparison(self) -> None:
        """The next message is asked once again."""
        raise NotImplementedError

    def show_title(self) -> None:
        """Draws the top line."""
        raise NotImplementedError

    def explain(self) -> None:
        """Says in the cache panel why the reply in focus found no more."""
        raise NotImplementedError

    def remember_deletion(self, words: str, restore: Callable[[], Chat], message_id: int | None = None) -> None:
        self.undo.append(Deletion(words, restore, message_id))
        self.notify(f"{words} deleted. {key_of(self, 'undo_delete')} brings it back.", markup=False)
