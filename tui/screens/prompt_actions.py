"""What happens in the prompt: messages, commands, completion, and what sending would cost."""

from __future__ import annotations

import asyncio
import os
import shlex
import subprocess
import tempfile
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path

from textual import on, work
from textual.app import SuspendNotSupported

from paged_chat.app.attachments import Attachment
from paged_chat.app.chats import Turn
from paged_chat.app.counted import counted
from paged_chat.app.errors import PagedChatError
from paged_chat.app.service.send_plan import SendPlan

from .. import slash_commands
from ..files import attachments_in, matching_paths, missing
from ..messages import PromptChanged, PromptSent
from ..notices import in_background, with_notices
from ..widgets.completions import Completions
from ..widgets.meter import Meter
from .service_screen import ServiceScreen

PLAN_AFTER_S = 0.25  # of no typing


class PromptActions(ServiceScreen):
    """The prompt's part of the chat screen."""

    def __init__(self) -> None:
        super().__init__()
        self._sending = asyncio.Lock()  # what was entered first is done first

    @on(PromptSent)
    @in_background
    async def send_prompt(self, event: PromptSent) -> None:
        """Sends a message, or the new version of one, or runs a command; what is refused stands in the prompt again."""
        async with self._sending:
            try:
                call = slash_commands.parse(event.text)
                if self.service is None:
                    raise NotOpenYet(self.why_closed or "the chats are being opened: try again in a moment")
                if call is None:
                    await self._send_message(event)
                else:
                    await self.run_command(call)
            except PagedChatError:
                self.prompt.give_back(event)
                raise
            self.prompt.remember(event.text)

    async def _send_message(self, event: PromptSent) -> None:
        attachments = await self._attached(slash_commands.message_text(event.text))
        text = slash_commands.message_text(event.expanded)
        if self.variants:
            turn = await self._send(text, attachments)
            self.end_comparison()
        elif self.edited_id is not None and self.chat is not None:
            turn = await self.write(self.open_service.edit, self.chat.id, self.edited_id, text, attachments=attachments)
        else:
            turn = await self._send(text, attachments)
        if self.chat is None or self.chat.id != turn.replies[0].chat_id:
            return  # the person has gone to another chat meanwhile
        self.end_edit()
        self.diff_reference_id = None
        self.selected_id = None
        self.compared_id = turn.replies[0].id if len(turn.replies) > 1 else None
        await self.read_chat(self.chat.id)  # the news of it may have been drawn already, before they were compared
        await self.conversation.show_end()

    async def _attached(self, text: str) -> list[Attachment]:
        """The files that a text names, read."""
        if "@" not in text:
            return []
        num_opened = self.num_opened
        attachments = await asyncio.to_thread(attachments_in, text)
        if self.num_opened != num_opened:
            raise NotOpenYet("another chat was opened while the files were read: send it again where it belongs")
        return attachments

    async def _send(self, text: str, attachments: Sequence[Attachment]) -> Turn:
        is_new = self.chat is None
        chat = await self.ensure_chat()
        try:
            if self.variants:
                return await self.write(
                    self.open_service.compare,
                    chat.id,
                    text,
                    self.variants,
                    parent_id=chat.active_leaf_id,
                    attachments=attachments,
                )
            return await self.write(
                self.open_service.send, chat.id, text, parent_id=chat.active_leaf_id, attachments=attachments
            )
        except PagedChatError:
            if is_new:
                if self.chat is not None and self.chat.id == chat.id:
                    self.workers.cancel_group(self, "chat")
                    self.chat = None
                await self.write(self.open_service.delete_chat, chat.id)
            raise

    # Editing

    def begin_edit(self, message_id: int, text: str) -> None:
        """Puts a message into the prompt; sending it makes a new version."""
        self.edited_id = message_id
        self.prompt.write(text)
        self.prompt.border_title = "edit: Enter sends a new version, Esc leaves it"
        self.prompt.add_class("editing")
        self.prompt.focus()

    def cancel_edit(self) -> None:
        """Leaves the message as it is; what was changed is one step up in the history."""
        text, edited_id = self.prompt.expanded(self.prompt.text), self.edited_id
        is_changed = edited_id is not None and edited_id in self.messages and self.messages[edited_id].text != text
        self.end_edit()
        self.prompt.empty()
        if is_changed:
            self.prompt.remember(text)

    def end_edit(self) -> None:
        self.edited_id = None
        self.prompt.border_title = None
        self.prompt.remove_class("editing")

    @with_notices
    def action_edit_in_editor(self) -> None:
        """Opens what is in the prompt in the person's own editor."""
        editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
        try:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "message.md"
                path.write_text(self.prompt.expanded(self.prompt.text), encoding="utf-8")
                with self.app.suspend():
                    subprocess.run([*shlex.split(editor), str(path)], check=True)
                text = path.read_text(encoding="utf-8")
        except SuspendNotSupported:
            raise EditorFailed("this terminal can't be lent to another program: write in the prompt") from None
        except (OSError, ValueError, subprocess.CalledProcessError) as error:
            raise EditorFailed(
                f"{editor} didn't work ({error}): set EDITOR to an editor that is there, or write in the prompt"
            ) from error
        self.prompt.write(text.rstrip("\n"))
        self.prompt.focus()

    # While it is written

    @on(PromptChanged)
    def look_at_prompt(self, event: PromptChanged) -> None:
        """Offers what the word could become, and asks what sending would cost."""
        self._offer_completions(event.text)
        self.show_plan()

    def _offer_completions(self, text: str) -> None:
        completions, word = self.query_one(Completions), self.prompt.word_before_cursor
        commands = slash_commands.completions(text)
        self.workers.cancel_group(self, "paths")
        if commands:
            completions.offer(
                [(f"/{command.name}", f"{command.argument}  {command.title}".strip()) for command in commands]
            )
        elif word.startswith("@"):
            completions.narrow(word)
            self._offer_paths(word)
        else:
            completions.close()

    @work(group="paths", exclusive=True, exit_on_error=False)
    async def _offer_paths(self, word: str) -> None:
        paths = await asyncio.to_thread(matching_paths, word)
        self.query_one(Completions).offer([(path, "") for path in paths])

    def show_plan(self) -> None:
        """Tells what sending the prompt would cost, once there is a pause in the writing."""
        self._show_plan(self.prompt.text)

    @work(group="plan", exclusive=True, exit_on_error=False)
    async def _show_plan(self, text: str) -> None:
        meter = self.query_one(Meter)
        if (command := slash_commands.help_line(text)) is not None:
            meter.show(command)
            return
        is_written = bool(text.strip()) and not slash_commands.completions(text)
        if not is_written:
            meter.show()
        if self.service is None:
            return
        await asyncio.sleep(PLAN_AFTER_S)
        if self.chat is None and not is_written:
            meter.clear()
            return
        try:
            attachments = await asyncio.to_thread(attachments_in, text) if is_written else []
            added = [(attachment.name, attachment.text) for attachment in attachments]
            added += [
                (word.strip("[]").replace(": ", ", "), pasted)
                for word, pasted in self.prompt.pastes.items()
                if word in text
            ]
            left = [f"{name}: {counted(await self._count_tokens(content), 'token')}" for name, content in added]
            unfinished = self.prompt.word_before_cursor  # what is being written may still become a file's name
            for name in await asyncio.to_thread(missing, text):
                left += [f"{name}: no such file"] if name not in unfinished else []
            whole = self.prompt.expanded(text) if is_written else ""
            plans = self.service.plans
            if self.variants and is_written:
                if self.chat is None:
                    asked = plans.compare_first(whole, self.variants, attachments=attachments)
                else:
                    asked = plans.compare(self.chat.id, whole, self.variants, attachments=attachments)
                prompts = await asyncio.wrap_future(asked)
                meter.show(", ".join([*left, str(prompts)]))
                return
            planned: Future[SendPlan]
            if self.chat is None:
                planned = plans.first(
                    whole, system_prompt=self.new_system_prompt, sampling=self.new_sampling, attachments=attachments
                )
            elif self.edited_id is not None:
                planned = plans.edit(self.chat.id, self.edited_id, whole, attachments=attachments)
            else:
                planned = plans.send(self.chat.id, whole, attachments=attachments)
            plan = await asyncio.wrap_future(planned)
            meter.show(", ".join([*left, str(plan)]) if is_written else "", plan=plan)
        except PagedChatError as error:
            # While a reply is written or the model loads there is nothing to plan; sending says so if it must.
            if is_written:
                meter.show(str(error))

    async def _count_tokens(self, text: str) -> int:
        return await asyncio.wrap_future(self.open_service.tokens.count(text))


class NotOpenYet(PagedChatError):
    """The chat that a message is for isn't open: the store is being opened, or another chat was meanwhile."""


class EditorFailed(PagedChatError):
    """The person's editor couldn't be used."""
