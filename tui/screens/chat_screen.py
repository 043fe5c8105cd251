"""The one screen on which people chat: chats, conversation, prompt, cache."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from typing import TYPE_CHECKING, Any, ClassVar, cast

from textual import work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.command import CommandPalette
from textual.containers import Horizontal, Vertical
from textual.worker import Worker, WorkerState

from paged_chat.app.chats import UNTITLED, MessageTree
from paged_chat.app.errors import ChatNotFound, PagedChatError
from paged_chat.app.service.chat_events import ChatChanged, ChatsChanged, EngineStatus

from ..actions import screen_bindings
from ..notices import keep_notices_above, show_error, with_notices
from ..palette import ActionProvider, ChatProvider
from ..rows import rows_of
from ..widgets.cache_panel import CachePanel
from ..widgets.chat_list import ChatList
from ..widgets.completions import Completions
from ..widgets.conversation import Conversation
from ..widgets.empty_state import EmptyState
from ..widgets.engine_words import engine_words, short_name
from ..widgets.key_line import KeyLine
from ..widgets.meter import Meter
from ..widgets.prompt import Prompt
from ..widgets.title_line import TitleLine
from ..widgets.why_not_more import WhyNotMore
from .chat_actions import ChatActions
from .help_screen import HelpScreen
from .side_columns import SideColumns

if TYPE_CHECKING:
    from paged_chat.app.service.chat_service import ChatService

    from ..app import PagedChatTui


class ChatScreen(SideColumns, ChatActions):
    """Shows what the service tells; what people do is in the actions it inherits."""

    BINDINGS: ClassVar[list[BindingType]] = [*screen_bindings()]
    COMMANDS: ClassVar[set[Any]] = {ActionProvider, ChatProvider}
    AUTO_FOCUS = "#prompt"

    def compose(self) -> ComposeResult:
        completions = Completions()
        yield TitleLine()
        with Horizontal(id="columns"):
            yield ChatList()
            with Vertical(id="middle"):
                yield Conversation()
                yield EmptyState()
                yield completions
                yield Prompt(completions)
                yield Meter()
            yield CachePanel()
        yield KeyLine()

    def on_mount(self) -> None:
        self.arrange_columns()
        self.show_title()
        self.screen_layout_refresh_signal.subscribe(self, lambda _: self._keep_notices_off_the_prompt())

    # The service

    def attach(self, service: ChatService) -> None:
        """The chats are there: from now on everything works."""
        self.service = service
        self.query_one(CachePanel).attach(service)
        self._follow_app(service)
        self.show_title()

    def stay_closed(self, reason: str) -> None:
        """The chats can't be opened: said as long as it is so, for nothing works before a new start."""
        self.why_closed = reason
        self.show_title()

    @work(group="app", exit_on_error=False)
    async def _follow_app(self, service: ChatService) -> None:
        async with service.watch_app() as watcher:
            self._show_chats()  # as they are now; then what changes
            async for event in watcher:
                if isinstance(event, EngineStatus):
                    self._show_engine(event)
                elif isinstance(event, ChatsChanged):
                    self._show_chats()

    def follow_chat(self, chat_id: str) -> None:
        self._follow_chat(chat_id)

    @work(group="chat", exclusive=True, exit_on_error=False)
    async def _follow_chat(self, chat_id: str) -> None:
        async with self.open_service.watch(chat_id) as watcher:
            async for event in watcher:
                if not isinstance(event, ChatChanged):
                    await self.conversation.grow(event)
                    if self.selected_id is None and event.miss is not None:
                        self.query_one(WhyNotMore).show(event.miss)
                elif event.is_deleted:
                    self.notify("This chat was deleted.")
                    self.call_later(self.open_chat, None)
                else:
                    await self.read_chat(chat_id)

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        """A fault of ours in the background: told, for nobody waits for its result."""
        if event.state is WorkerState.ERROR and event.worker.error is not None:
            show_error(self, event.worker.error)

    # What is shown

    @with_notices
    async def open_chat(self, chat_id: str | None) -> None:
        self.workers.cancel_group(self, "chat")
        self.num_opened += 1
        self.selected_id = self.compared_id = self.diff_reference_id = None
        self.is_new_temporary = False
        self.new_system_prompt = self.new_sampling = None
        if self.edited_id is not None:
            self.cancel_edit()
        if self.variants:
            self.end_comparison()
        await self.conversation.clear()
        self.chat, self.messages = None, MessageTree(())
        if chat_id is None:
            await self.show_rows()
            self.prompt.set_history([])
            self.show_plan()
        else:
            await self.read_chat(chat_id)
            self.prompt.set_history([message.text for message in self.path if message.role == "user"])
            self.conversation.anchor()
            self.follow_chat(chat_id)
        self._show_chats()
        self.show_title()
        if self.is_over(ChatList):
            self.put_back(ChatList)
        self.prompt.focus()

    async def read_chat(self, chat_id: str) -> None:
        try:
            self.chat = self.open_service.chat(chat_id)
            self.messages = self.open_service.tree(chat_id)
        except ChatNotFound:
            return  # deleted meanwhile: that is told as well
        except PagedChatError as error:
            show_error(self, error)
            return
        await self.show_rows()
        self.show_title()
        self.explain()
        if self.selected_id is None:
            self.show_plan()

    def explain(self) -> None:
        self._explain()

    @work(group="why", exclusive=True, exit_on_error=False)
    async def _explain(self) -> None:
        reply = self.message_in_focus("assistant")
        reason = None
        if reply is not None:
            with contextlib.suppress(PagedChatError):  # deleted meanwhile, for instance: that is told as well
                reason = await asyncio.to_thread(self.open_service.miss_reason, reply.chat_id, reply.id)
        self.query_one(WhyNotMore).show(reason)

    async def show_rows(self) -> None:
        self.query_one(KeyLine).is_writing = any(message.status == "draft" for message in self.messages)
        if self.chat is None:
            return
        rows = rows_of(self.messages, self.chat.active_leaf_id, self.compared_id)
        if self.compared_id is not None and not any(row.is_group for row in rows):
            self.compared_id = None
        await self.conversation.show(rows)
        await self.show_diff()
        self._show_empty()
        if self.focused is None:
            self.prompt.focus()

    def show_title(self) -> None:
        chat = self.chat
        title = chat.title if chat is not None else UNTITLED
        if self.is_new_temporary or (chat is not None and chat.is_temporary):
            title += " (temporary)"
        sampling = None if self.service is None else self.sampling
        engine = engine_words(self.engine_status, is_closed=self.why_closed is not None)
        self.query_one(TitleLine).show(title, engine, sampling)
        self._show_empty()

    def _show_empty(self) -> None:
        is_empty = not self.path
        self.conversation.display = not is_empty
        empty = self.query_one(EmptyState)
        empty.display = is_empty
        empty.show(self.engine_status, self.why_closed)

    @with_notices
    def _show_chats(self) -> None:
        if self.service is not None:
            open_id = None if self.chat is None else self.chat.id
            self.query_one(ChatList).show(self.service.chats(), open_id, self.service.running_chat_ids())

    def _show_engine(self, status: EngineStatus) -> None:
        before, self.engine_status = self.engine_status, status
        if status.phase == "ready" and (before is None or before.phase != "ready"):
            # torch has left half a million objects that stay; walking over them again and again costs frames.
            gc.collect()
            gc.freeze()
        if status.phase == "failed" and (before is None or before.phase != "failed"):
            # Another model may have failed before this screen heard that it was being loaded.
            was_ready = before is not None and before.phase == "ready" and before.model == status.model
            words = "has stopped" if was_ready else "didn't load"
            how = "" if status.server is None else ". /engine own loads one here"
            self.notify(f"The model {words}: {status.error}{how}", severity="error", timeout=15, markup=False)
        refused = status.fetch is not None and status.fetch.error
        if refused and (before is None or before.fetch != status.fetch):
            words = f"{refused}. {short_name(status.model)} goes on answering."
            self.notify(words, severity="error", timeout=15, markup=False)
        self.query_one(CachePanel).show_engine(status)
        self.show_title()

    def _keep_notices_off_the_prompt(self) -> None:
        completions = self.query_one(Completions)
        keep_notices_above(self, (completions if completions.is_open else self.prompt).region.y)

    # Of the whole program

    def action_stop(self) -> None:
        """Closes what is open over the conversation or in the prompt, else stops the reply, else goes to the prompt.

        Notices, which have been read by who presses a key, go away as well.
        """
        self.app.clear_notifications()
        completions = self.query_one(Completions)
        is_covered = self.is_over(ChatList) or self.is_over(CachePanel)
        if completions.is_open:
            completions.close()
        elif self.edited_id is not None and not is_covered:  # before the reply: the prompt says that Esc leaves it
            self.cancel_edit()
        elif self.variants and not is_covered:
            self.end_comparison()
        elif self.chat is not None and self.service is not None and self.service.stop(self.chat.id):
            pass
        elif is_covered:
            self.put_back(ChatList, CachePanel)
            self.prompt.focus()
        else:
            self.selected_id = None
            self.explain()
            self.show_plan()
            self.prompt.focus()
            self.conversation.anchor()

    def action_show_help(self) -> None:
        app = cast("PagedChatTui", self.app)
        app.push_screen(HelpScreen(app.keymap, app.keymap_path))

    def action_show_palette(self) -> None:
        if not CommandPalette.is_open(self.app):
            self.app.push_screen(CommandPalette(placeholder="Search actions and chats…", id="--command-palette"))

    async def action_quit(self) -> None:
        await self.app.action_quit()
