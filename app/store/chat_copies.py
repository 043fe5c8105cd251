"""Chats that are written as a whole: imported ones, and forks."""

from __future__ import annotations

from dataclasses import fields
from sqlite3 import Connection

from ..chats import Chat, Message, MessageContent, MessageTree, SamplingParams
from ..imported_chat import ImportedChat, ImportedMessage
from . import chat_table, message_table, miss_reasons, token_logprobs
from .rows import now_to_db, time_from, time_to_db


def add(connection: Connection, imported: ImportedChat, user: str) -> str:
    """Adds a chat with all its messages and gives its id.

    One that was last used in times to come, by its own account, counts as used just now: it would stand before all
    others until then.
    """
    updated_at = min(time_to_db(imported.updated_at), now_to_db(connection, user))
    chat_id = chat_table.insert(
        connection,
        user=user,
        title=imported.title,
        has_own_title=imported.has_own_title,
        is_pinned=imported.is_pinned,
        is_archived=imported.is_archived,
        tags=imported.tags,
        system_prompt=imported.system_prompt,
        model=imported.model,
        sampling=imported.sampling or SamplingParams(),
        created_at=time_to_db(imported.created_at),
        updated_at=updated_at,
    )
    ids: list[int] = []
    for message in imported.messages:
        ids.append(
            message_table.insert(
                connection,
                chat_id,
                None if message.parent is None else ids[message.parent],
                role=message.role,
                text=message.text,
                token_ids=message.token_ids,
                model=message.model,
                sampling=message.sampling,
                variant=message.variant,
                cost=message.cost,
                finish_reason="abort" if message.status == "draft" else message.finish_reason,
                status="stopped" if message.status == "draft" else message.status,
                error=message.error,
                created_at=time_to_db(message.created_at),
            )
        )
    if imported.active_leaf is not None:
        connection.execute("UPDATE chats SET active_leaf_id = ? WHERE id = ?", (ids[imported.active_leaf], chat_id))
    return chat_id


def whole(chat: Chat, tree: MessageTree) -> ImportedChat:
    """A chat with all its branches, for another store."""
    messages = sorted(tree, key=lambda message: message.id)
    places = {message.id: place for place, message in enumerate(messages)}

    def place_of(message_id: int | None) -> int | None:
        return None if message_id is None else places[message_id]

    return ImportedChat(
        title=chat.title,
        has_own_title=chat.has_own_title,
        is_pinned=chat.is_pinned,
        is_archived=chat.is_archived,
        tags=chat.tags,
        system_prompt=chat.system_prompt,
        model=chat.model,
        sampling=chat.sampling,
        messages=tuple(_below(place_of(message.parent_id), message) for message in messages),
        active_leaf=place_of(chat.active_leaf_id),
        created_at=chat.created_at,
        updated_at=chat.updated_at,
    )


def fork(connection: Connection, chat_id: str, message_id: int) -> str:
    """Adds a chat that holds the path up to a message, and gives its id; raises ChatNotFound, MessageNotFound."""
    chat = chat_table.get(connection, chat_id)
    message_table.get_in_chat(connection, chat_id, message_id)
    path = message_table.tree(connection, chat_id).path(message_id)
    now = time_from(now_to_db(connection, chat.user))
    copy = ImportedChat(
        title=f"{chat.title} (fork)",
        has_own_title=True,
        tags=chat.tags,
        system_prompt=chat.system_prompt,
        model=chat.model,
        sampling=chat.sampling,
        messages=tuple(_below(index - 1 if index else None, message) for index, message in enumerate(path)),
        active_leaf=len(path) - 1,
        created_at=now,
        updated_at=now,
    )
    copy_id = add(connection, copy, chat.user)
    for message, copied in zip(path, message_table.tree(connection, copy_id), strict=True):
        token_logprobs.copy(connection, message.id, copied.id)
        miss_reasons.copy(connection, message.id, copied.id)
    return copy_id


def _below(parent: int | None, message: Message) -> ImportedMessage:
    kept = {field.name: getattr(message, field.name) for field in fields(MessageContent)}
    return ImportedMessage(parent=parent, **kept)
