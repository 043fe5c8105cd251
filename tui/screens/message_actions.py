"""What a person can do with one message."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace

from textual import on, work

from paged_chat.app.chats import Message
from paged_chat.app.counted import counted
from paged_chat.app.errors import PagedChatError
from paged_chat.app.service.send_plan import SendPlan

from ..key_names import key_of
from ..messages import CodeCopied, MessageSelected, ReplyPicked
from ..notices import in_background, with_notices
from ..widgets.meter import Meter
from ..widgets.reply_group import ReplyGroup
from .dialogs import ChoiceDialog, TextDialog
from .service_screen import NotPossible
from .token_actions import TokenActions


class MessageActions(TokenActions):
    """The messages' part of the chat screen. An action is about the selected message, else about the last one."""

    @on(MessageSelected)
    def select(self, event: MessageSelected) -> None:
        self.selected_id = event.message_id
        self._choose(event.message_id)
        self.explain()
        self._show_costs()

    @in_background
    async def _choose(self, message_id: int) -> None:
        """Of replies side by side, what is written next goes on from the one that was looked at last."""
        group = self._group_in_focus()
        if group is None or self.chat is None or message_id not in group.message_ids:
            return
        if message_id not in [message.id for message in self.path]:
            # At once: a message may be sent before this is stored.
            self.chat = replace(self.chat, active_leaf_id=self.messages.newest_leaf(message_id))
            await self.show_rows()
            await self.write(self.open_service.pick, self.chat.id, message_id)

    @work(group="plan", exclusive=True, exit_on_error=False)
    async def _show_costs(self) -> None:
        """What can be done with the selected message, and what it would take, in the line under the prompt."""
        message, service = self.message_in_focus(), self.open_service
        if message is None:
            return
        plans: dict[str, Callable[[str, int], Future[SendPlan]]]
        plans = {"retry": service.plans.retry, "fork": service.plans.fork}
        if message.status == "stopped" or message.finish_reason == "length":
            plans = {"continue": service.plans.continue_reply, **plans}
        words = []
        for action, plan in plans.items():
            # A reply that is being written can't be forked yet, and a message without reply has none to continue.
            with contextlib.suppress(PagedChatError):
                planned = await asyncio.wrap_future(plan(message.chat_id, message.id))
                words.append(f"{action}: {planned.brief}")
        self.query_one(Meter).show(" · ".join(words))

    # Writing again

    @in_background
    async def action_retry(self, count: int = 1) -> None:
        message = self._needed("send a message first: then there is a reply to try again")
        turn = await self.write(self.open_service.retry, message.chat_id, message.id, n=count)
        self.selected_id = None
        if self.chat is None or self.chat.id != message.chat_id:
            return  # the person has gone to another chat meanwhile
        self.compared_id = turn.replies[0].id if count > 1 else None
        await self.read_chat(message.chat_id)
        self.conversation.anchor()

    @with_notices
    def action_edit(self) -> None:
        message = self.message_in_focus("user")
        if message is None:
            raise NotPossible("there is no message of yours yet: write one in the prompt")
        self.begin_edit(message.id, message.text)

    @in_background
    async def action_continue_reply(self) -> None:
        message = self.message_in_focus("assistant")
        if message is None:
            raise NotPossible("there is no reply yet that could go on")
        await self.write(self.open_service.continue_reply, message.chat_id, message.id)
        self.conversation.anchor()

    # Versions

    def action_previous_sibling(self) -> None:
        self._walk(-1)

    def action_next_sibling(self) -> None:
        self._walk(1)

    @in_background
    async def _walk(self, direction: int) -> None:
        """To the version beside this one; where a message has one only, those of the message above it count."""
        group = self._group_in_focus()
        if group is not None:
            view = group.step(direction)
            if self.selected_id is None:  # from the prompt, to which what is typed then belongs
                self._choose(view.message.id)
            else:
                view.focus()
            return
        message: Message | None = self._needed("there is nothing here yet")
        while message is not None and len(self.messages.siblings(message.id)) < 2:
            message = self.messages[message.parent_id] if message.parent_id is not None else None
        if message is None:
            raise NotPossible(f"no message here has other versions: {key_of(self, 'retry')} writes another reply")
        siblings = [sibling.id for sibling in self.messages.siblings(message.id)]
        place = siblings.index(message.id) + direction
        if 0 <= place < len(siblings):
            if self.selected_id is not None:
                self.selected_id = siblings[place]
            await self.write(self.open_service.pick, message.chat_id, siblings[place])

    @with_notices
    async def action_compare(self) -> None:
        """All versions of the message side by side; once more, the one that is chosen alone."""
        if self.compared_id is not None:
            self.compared_id = None
        else:
            message = self._needed("there is nothing here yet")
            if len(self.messages.siblings(message.id)) < 2:
                raise NotPossible(f"this message has one version: {key_of(self, 'retry')} writes another")
            self.compared_id = message.id
        await self.show_rows()
        self.explain()

    @with_notices
    def action_pick(self) -> None:
        """Goes on with the selected one of several replies; of any other message, unfolds what is folded."""
        view = self.view_in_focus()
        if view is None:
            return
        if self._group_in_focus() is None:
            view.toggle_folds()
        else:
            self.pick_reply(ReplyPicked(view.message.id))

    @on(ReplyPicked)
    @in_background
    async def pick_reply(self, event: ReplyPicked) -> None:
        self.compared_id = None
        self.selected_id = None
        self.prompt.focus()  # now: with its group the reply goes, and the focus would go on to another message
        assert self.chat is not None, "picked in no chat"
        await self.write(self.open_service.pick, self.chat.id, event.message_id)

    def action_toggle_thinking(self) -> None:
        view = self.view_in_focus()
        if view is not None:
            view.toggle_folds()

    # Taking along

    @in_background
    async def action_fork(self) -> None:
        message = self._needed("there is nothing to go on from yet")
        chat = await self.write(self.open_service.fork, message.chat_id, message.id)
        self.notify(f"A new chat goes on from here: {chat.title}", markup=False)
        await self.open_chat(chat.id)

    @with_notices
    def action_copy_message(self) -> None:
        self._needed("there is nothing to copy yet")
        view = self.view_in_focus()
        if view is not None:
            self._copy(view.answer, "message")

    @in_background
    async def action_copy_code(self) -> None:
        view = self.view_in_focus()
        blocks = [] if view is None else view.code_blocks
        if not blocks:
            raise NotPossible("this message has no code: select one that has")
        code: str | None = blocks[0]
        if len(blocks) > 1:
            choices = [(str(i), f"{i + 1}: {_first_line(block)}") for i, block in enumerate(blocks)]
            chosen = await self.app.push_screen_wait(ChoiceDialog("Copy which code?", choices))
            code = None if chosen is None else blocks[int(chosen)]
        if code is not None:
            self._copy(code, "code")

    @on(CodeCopied)
    def copy_code_block(self, event: CodeCopied) -> None:
        self._copy(event.code, "code")

    @in_background
    async def action_save_message(self) -> None:
        message = self._needed("there is nothing to save yet")
        path = await self.app.push_screen_wait(TextDialog("Save the message to", f"message-{message.id}.md"))
        if path:
            self.save_message(path)

    @in_background
    async def save_message(self, path: str) -> None:
        """Writes the message in focus to a file that isn't there yet."""
        self._needed("there is nothing to save yet")
        view = self.view_in_focus()
        text = view.answer if view is not None else ""
        await self.write_file(path, lambda out: out.write(f"{text}\n"), "Saved to")

    def _copy(self, text: str, what: str) -> None:
        """By the terminal's own clipboard sequence (OSC 52), which tells nobody whether it worked."""
        self.app.copy_to_clipboard(text)
        words = f"Copied the {what}, {counted(len(text), 'character')}."
        self.notify(f"{words} Not in your clipboard? {key_of(self, 'save_message')} saves to a file.", markup=False)

    # Deleting

    @in_background
    async def action_delete_message(self) -> None:
        message = self._needed("there is nothing to delete here")
        service, chat_id, message_id = self.open_service, message.chat_id, message.id
        # Who acts on messages goes on with the one above.
        self.selected_id = message.parent_id if self.selected_id == message_id else None
        await self.write(service.delete_message, chat_id, message_id)
        self.remember_deletion("Message", lambda: service.restore_message(chat_id, message_id), message_id)

    @in_background
    async def action_undo_delete(self) -> None:
        if not self.undo:
            raise NotPossible("nothing was deleted since the start")
        deletion = self.undo.pop()
        try:
            restored = await self.write(deletion.restore)
        except PagedChatError:
            self.undo.append(deletion)
            raise
        self.notify(f"{deletion.words} is back.", markup=False)
        if self.chat is None or restored.id != self.chat.id:
            await self.open_chat(restored.id)
        elif self.selected_id is not None and deletion.message_id is not None:
            await self.read_chat(restored.id)
            await self.conversation.reveal(deletion.message_id)  # else keys would act on a message that isn't seen

    # Moving about

    def action_previous_message(self) -> None:
        self.conversation.step(-1, self.selected_id)

    def action_next_message(self) -> None:
        self.conversation.step(1, self.selected_id)

    # Inside

    def _needed(self, otherwise: str) -> Message:
        """The message in focus; says what to do where there is none."""
        message = self.message_in_focus()
        if message is None or self.service is None:
            raise NotPossible(otherwise)
        return message

    def _group_in_focus(self) -> ReplyGroup | None:
        view = self.view_in_focus()
        return next((node for node in view.ancestors if isinstance(node, ReplyGroup)), None) if view else None


def _first_line(code: str) -> str:
    return next((line for line in code.splitlines() if line.strip()), "")[:60]
