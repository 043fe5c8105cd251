"""Chats as they stand at this moment: what is stored, and on top of it the replies that are being written."""

from __future__ import annotations

from ..chats import Chat, MessageTree
from .reply_desk import ReplyDesk
from .stores import Stores


class LiveChats:
    """Reads, and changes nothing; safe from any thread. Raises ChatNotFound, and what a Store raises."""

    def __init__(self, stores: Stores, desk: ReplyDesk) -> None:
        self._stores = stores
        self._desk = desk

    def read(self, chat_id: str) -> tuple[Chat, MessageTree]:
        return self.chat(chat_id), self.tree(chat_id)

    def chat(self, chat_id: str, user: str | None = None) -> Chat:
        """With `user` given, somebody else's chat isn't found."""
        return self._stores.of(chat_id).chat(chat_id, user)

    def tree(self, chat_id: str) -> MessageTree:
        """The chat's messages; those that are being written with their text as far as it has come."""
        # In this order: a reply that ends in between is in the first, or finished in the second.
        unsaved = {reply.message_id: reply.message() for reply in self._desk.replies(chat_id)}
        tree = self._stores.of(chat_id).tree(chat_id)
        if not unsaved:
            return tree
        return MessageTree(
            unsaved.get(message.id, message) if message.status == "draft" else message for message in tree
        )
