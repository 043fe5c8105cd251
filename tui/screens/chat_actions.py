"""What a person can do with chats, and the commands of the prompt.

Here and in the other actions, what only one action needs is imported by it: the first frame waits for every import.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, cast

from textual import on

from paged_chat.app.chats import Chat
from paged_chat.app.counted import counted
from paged_chat.app.known_models import check_model_name
from paged_chat.app.written_setting import read_setting, setting_words

from .. import slash_commands
from ..messages import ChatChosen
from ..notices import in_background, with_notices
from ..plain_text import plain
from .comparison_actions import ComparisonActions
from .dialogs import ChoiceDialog, ConfirmDialog, TextDialog
from .message_actions import MessageActions
from .model_list import model_choices
from .prompt_actions import PromptActions
from .service_screen import NotPossible
from .setting_actions import SettingActions

if TYPE_CHECKING:
    from ..app import PagedChatTui


class ChatActions(MessageActions, PromptActions, SettingActions, ComparisonActions):
    """The chats' part of the chat screen."""

    # Which chat

    async def action_new_chat(self) -> None:
        self.is_new_temporary = False
        await self.open_chat(None)

    async def action_new_temporary(self) -> None:
        await self.open_chat(None)
        self.is_new_temporary = True
        self.notify("This chat is kept in memory only, until the program ends; /keep stores it.")
        self.show_title()

    @on(ChatChosen)
    async def choose_chat(self, event: ChatChosen) -> None:
        await self.open_chat(event.chat_id)

    async def action_previous_chat(self) -> None:
        await self._step_chat(-1)

    async def action_next_chat(self) -> None:
        await self._step_chat(1)

    @with_notices
    async def _step_chat(self, direction: int) -> None:
        if self.service is None:
            return
        ids = [chat.id for chat in self.service.chats()]
        place = ids.index(self.chat.id) + direction if self.chat is not None and self.chat.id in ids else 0
        if 0 <= place < len(ids):
            await self.open_chat(ids[place])

    def action_search(self) -> None:
        self.search("")

    @in_background
    async def search(self, query: str) -> None:
        if self.service is None:
            return
        from .search_screen import SearchScreen

        hit = await self.app.push_screen_wait(SearchScreen(self.service, query))
        if hit is None:
            return
        if hit.message_id is not None:
            tree = self.service.tree(hit.chat.id)
            path = tree.path(self.service.chat(hit.chat.id).active_leaf_id)
            if hit.message_id not in [message.id for message in path]:
                await self.write(self.service.pick, hit.chat.id, hit.message_id)
        await self.open_chat(hit.chat.id)
        if hit.message_id is not None:
            await self.conversation.reveal(hit.message_id)

    # The chat that is shown

    @in_background
    async def action_rename_chat(self) -> None:
        chat = self._needed_chat()
        title = await self.app.push_screen_wait(TextDialog("Title of the chat", chat.title))
        if title and title.strip():
            await self.write(self.open_service.rename, chat.id, title.strip())

    @in_background
    async def action_pin_chat(self) -> None:
        chat = self._needed_chat()
        await self.write(self.open_service.update_chat, chat.id, is_pinned=not chat.is_pinned)

    @in_background
    async def action_archive_chat(self) -> None:
        chat = self._needed_chat()
        await self.write(self.open_service.update_chat, chat.id, is_archived=not chat.is_archived)
        self.notify("The chat is back in the list." if chat.is_archived else "Archived: /archived lists such chats.")

    @in_background
    async def action_archived_chats(self) -> None:
        chats = self.open_service.chats(archived=True)
        if not chats:
            raise NotPossible("no chat is archived: /archive puts the one that is open there")
        question = "Open which archived chat? There /archive brings it back to the list."
        choices = [(chat.id, plain(chat.title)) for chat in chats]
        if (chosen := await self.app.push_screen_wait(ChoiceDialog(question, choices))) is not None:
            await self.open_chat(chosen)

    @in_background
    async def action_keep_chat(self) -> None:
        chat = self._needed_chat()
        if not chat.is_temporary:
            raise NotPossible("this chat is stored already")
        kept = await self.write(self.open_service.keep_chat, chat.id)
        await self.open_chat(kept.id)
        self.notify("This chat is stored now.")

    @in_background
    async def action_delete_chat(self) -> None:
        chat = self._needed_chat()
        if chat.is_temporary:
            question = "A temporary chat can't be brought back. Delete it?"
            if not await self.app.push_screen_wait(ConfirmDialog(question)):
                return
        service = self.open_service
        await self.write(service.delete_chat, chat.id)
        await self.open_chat(None)
        if not chat.is_temporary:
            self.remember_deletion(f'"{chat.title}"', lambda: service.restore_chat(chat.id))

    @in_background
    async def action_export_chat(self) -> None:
        chat = self._needed_chat()
        name = "".join(letter if letter.isalnum() else "-" for letter in chat.title.lower()).strip("-")[:40] or "chat"
        path = await self.app.push_screen_wait(TextDialog("Export to (.md or .json)", f"{name}.md"))
        if path:
            self.export(path)

    @in_background
    async def export(self, path: str) -> None:
        """Writes the whole tree of the chat to a file that isn't there yet, in the format that its name says."""
        from paged_chat.app.porting import write_json, write_markdown

        chat, service = self._needed_chat(), self.open_service
        writers = {".json": write_json, ".md": write_markdown}
        writer = writers.get(PurePath(path).suffix)
        if writer is None:
            raise NotPossible(f"{path} names no kind of file: end it with .md or .json")
        await self.write_file(path, lambda out: writer([(chat, service.tree(chat.id))], out), "Exported to")

    @in_background
    async def import_chats(self, path: str) -> None:
        """Adds all chats of a file, or none; the only one is opened."""
        if not path:
            raise NotPossible("/import needs the path of a file behind it")
        from paged_chat.app.porting import read_file

        read = await asyncio.to_thread(lambda: read_file(Path(os.path.expanduser(path))))
        added = await self.write(lambda: self.open_service.import_chats(read.chats))
        left_out = ", ".join(f"{count:,} {thing}" for thing, count in sorted(read.left_out.items()))
        words = f"{counted(len(added), 'chat')} imported"
        self.notify(f"{words}; not taken over: {left_out}" if left_out else words)
        if len(added) == 1:
            await self.open_chat(added[0].id)

    # The model

    @in_background
    async def action_choose_model(self) -> None:
        if self.service is None:
            return
        loaded = self.service.engine_status.model
        name = await self.app.push_screen_wait(ChoiceDialog("Which model?", model_choices(loaded), loaded))
        if name is not None:
            await self._load_model(name)

    async def _load_model(self, name: str) -> None:
        if (force := await self._may_end_replies()) is not None:
            await self._exchange(lambda: self.open_service.switch_model(name, force=force))

    async def _exchange(self, switch: Callable[[], None]) -> None:
        """In order with what is stored, but nothing is: it may take as long as the engine that goes needs for it."""
        async with self.writing:
            await asyncio.to_thread(switch)

    async def _may_end_replies(self) -> bool | None:
        """Whether replies are being written that may be stopped; None where the person wants them to go on."""
        is_running = bool(self.open_service.running_chat_ids())
        if is_running and not await self.app.push_screen_wait(
            ConfirmDialog("A reply is being written. Stop it, and take the other model?")
        ):
            return None
        return is_running

    @in_background
    async def choose_engine(self, which: str) -> None:
        """Loads a model here, or uses the engine of a `paged-chat web` or `serve` that runs."""
        status = self.open_service.engine_status
        match which:
            case "":
                self.notify(f"The engine is {'our own' if status.server is None else f'that at {status.server}'}")
            case "own":
                await self._load_model(status.model)
            case "shared":
                from paged_chat.app.api.running_server import NO_SERVER, server_for

                server = await asyncio.to_thread(server_for, status.model)
                if server is None:
                    raise NotPossible(NO_SERVER)
                if (force := await self._may_end_replies()) is not None:
                    await self._exchange(lambda: self.open_service.use_server(server, force=force))
            case "ask":
                cast("PagedChatTui", self.app).engine_choice.forget()
                self.notify("The next start asks, if it finds a running paged-chat")
            case _:
                raise NotPossible("/engine takes own, shared or ask")

    # Commands

    async def run_command(self, call: slash_commands.Call) -> None:
        command, argument = call.command, call.argument
        if command.action is not None:
            await self.run_action(f"screen.{command.action}")
        elif command.setting is not None:
            if argument:
                await self.set_sampling(**{command.setting: read_setting(command.setting, argument)})
            else:
                sampling = self.sampling
                self.notify(f"{setting_words(command.setting, getattr(sampling, command.setting))}. {command.help}")
        else:
            await self._run_with_argument(command.name, argument)

    async def _run_with_argument(self, name: str, argument: str) -> None:
        match name:
            case "search":
                self.search(argument)
            case "system":
                await self.set_system_prompt(argument)
            case "use-system":
                await self.use_system_prompt(argument)
            case "save-system":
                await self.save_system_prompt(argument)
            case "model" if argument:
                self.load_model_named(argument)
            case "model":
                self.action_choose_model()
            case "engine":
                self.choose_engine(argument)
            case "preset":
                await self.use_preset(argument)
            case "save-preset":
                await self.save_preset(argument)
            case "forget":
                await self.forget_preset(argument)
            case "compare" if argument:
                self.begin_comparison(argument)
            case "compare":
                await self.action_compare()
            case "table" if argument:
                self.export_table(argument)
            case "table":
                self.action_export_table()
            case "retry":
                self.action_retry(cast(int, read_setting("n", argument or "1")))
            case "save" if argument:
                self.save_message(argument)
            case "save":
                self.action_save_message()
            case "export" if argument:
                self.export(argument)
            case "export":
                self.action_export_chat()
            case "import":
                self.import_chats(argument)
            case "rename" if argument:
                await self.write(self.open_service.rename, self._needed_chat().id, argument)
            case "rename":
                self.action_rename_chat()
            case "theme" if argument:
                if argument not in self.app.available_themes:
                    raise NotPossible(f"no theme is called {argument}: /theme lists them")
                self.app.theme = argument
            case "theme":
                self.app.search_themes()
            case _:
                raise AssertionError(f"/{name} does nothing")

    @in_background
    async def load_model_named(self, name: str) -> None:
        check_model_name(name)  # a mistyped one takes no model away
        await self._load_model(name)

    def _needed_chat(self) -> Chat:
        if self.chat is None or self.service is None:
            raise NotPossible("this chat is still empty: send a message first")
        return self.chat
