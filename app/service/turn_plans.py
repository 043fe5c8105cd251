"""What a turn would cost, known before it is begun."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Protocol, TypeVar

from paged_chat.engine.errors import InvalidParameter
from paged_chat.engine.request import SamplingParams

from ..attachments import Attachment, with_attachments
from ..chats import Chat, Message
from ..comparison.variant import Variant, check_variants
from .background import Background
from .branching import plan_branch, reply_in
from .comparing import ComparisonPlan, plan_comparison, under_variant
from .engine_host import EngineHost, LoadedEngine
from .live_chats import LiveChats
from .new_turn import find_whole, parent_of_edit, parent_of_message, question_of
from .prompts import preview
from .send_plan import SendPlan

Plan = TypeVar("Plan")


class UnbegunChat(Protocol):
    """Gives a chat as it would begin; see `ChatLibrary.unbegun_chat`."""

    def __call__(
        self, *, user: str = "", system_prompt: str | None = None, sampling: SamplingParams | None = None
    ) -> Chat: ...


class TurnPlans:
    """For each way to begin a turn a method of the same name: what it would reuse, compute and leave out, now.

    `first` and `compare_first` are `send` and `compare` in a chat that isn't created yet.

    Nothing is stored and nothing computed but the prompt's token ids. The futures wait for the model to load and raise
    what the turn itself would raise; cancel one when what was asked has changed.
    """

    def __init__(self, chats: LiveChats, unbegun_chat: UnbegunChat, host: EngineHost, background: Background) -> None:
        self._chats = chats
        self._unbegun_chat = unbegun_chat
        self._host = host
        self._background = background

    def send(
        self, chat_id: str, text: str, *, parent_id: int | None = None, attachments: Sequence[Attachment] = ()
    ) -> Future[SendPlan]:
        chat, tree = self._chats.read(chat_id)
        path = tree.path(parent_of_message(chat, parent_id))
        return self._plan(chat, path, with_attachments(text, attachments))

    def first(
        self,
        text: str,
        *,
        user: str = "",
        system_prompt: str | None = None,
        sampling: SamplingParams | None = None,
        attachments: Sequence[Attachment] = (),
    ) -> Future[SendPlan]:
        """system_prompt, sampling: as `create_chat` would be given them."""
        chat = self._unbegun_chat(user=user, system_prompt=system_prompt, sampling=sampling)
        return self._plan(chat, (), with_attachments(text, attachments))

    def edit(
        self, chat_id: str, message_id: int, text: str, *, attachments: Sequence[Attachment] = ()
    ) -> Future[SendPlan]:
        chat, tree = self._chats.read(chat_id)
        return self._plan(chat, tree.path(parent_of_edit(tree, message_id)), with_attachments(text, attachments))

    def compare(
        self,
        chat_id: str,
        text: str,
        variants: Sequence[Variant],
        *,
        parent_id: int | None = None,
        attachments: Sequence[Attachment] = (),
    ) -> Future[ComparisonPlan]:
        """Variants of one system prompt have one prompt."""
        check_variants(variants)
        chat, tree = self._chats.read(chat_id)
        path = tree.path(parent_of_message(chat, parent_id))
        whole = with_attachments(text, attachments)
        return self._when_loaded(lambda loaded: plan_comparison(loaded, chat, path, whole, variants))

    def compare_first(
        self, text: str, variants: Sequence[Variant], *, user: str = "", attachments: Sequence[Attachment] = ()
    ) -> Future[ComparisonPlan]:
        check_variants(variants)
        chat = self._unbegun_chat(user=user)
        whole = with_attachments(text, attachments)
        return self._when_loaded(lambda loaded: plan_comparison(loaded, chat, (), whole, variants))

    def retry(self, chat_id: str, message_id: int) -> Future[SendPlan]:
        chat, tree = self._chats.read(chat_id)
        return self._plan(chat, tree.path(question_of(tree, message_id)), None)

    def continue_reply(self, chat_id: str, message_id: int) -> Future[SendPlan]:
        chat, tree = self._chats.read(chat_id)
        path = tree.path(message_id)
        if path[-1].role != "assistant":
            raise InvalidParameter("only a reply can be continued: send a message to get one")
        return self._plan(under_variant(chat, path[-1]), path, None, continue_reply=True)

    def branch_at_token(self, chat_id: str, message_id: int, token_index: int) -> Future[SendPlan]:
        """Whichever token is taken."""
        chat, tree = self._chats.read(chat_id)
        reply = reply_in(tree, message_id)
        own_chat = under_variant(chat, reply)
        return self._when_loaded(lambda loaded: plan_branch(loaded, own_chat, tree, reply, token_index))

    def fork(self, chat_id: str, message_id: int) -> Future[SendPlan]:
        """The first turn of the new chat, beside what the person will write.

        Behind a message of a person that is a reply to it; behind a reply, a message of which nothing is written yet.
        """
        chat, tree = self._chats.read(chat_id)
        message = find_whole(tree, message_id)
        return self._plan(chat, tree.path(message_id), "" if message.role == "assistant" else None)

    def _plan(
        self, chat: Chat, path: Sequence[Message], text: str | None, *, continue_reply: bool = False
    ) -> Future[SendPlan]:
        most = chat.sampling.max_tokens
        return self._when_loaded(lambda loaded: preview(loaded, chat, path, text, most, continue_reply=continue_reply))

    def _when_loaded(self, plan: Callable[[LoadedEngine], Plan]) -> Future[Plan]:
        self._host.check_usable()
        return self._background.after(self._host.loaded, plan)
