"""Messages in the database: each function is part of one reading or one transaction of the store.

A message changes only while it is a draft, and only by the store that writes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from sqlite3 import Connection

from paged_chat.engine.request import FinishReason, SamplingParams

from ..chats import (
    FIRST_TEMPORARY_MESSAGE_ID,
    Message,
    MessageRole,
    MessageStatus,
    MessageTree,
    NewReply,
    ReplyCost,
    ReplyVariant,
    Turn,
    title_from,
)
from ..errors import MessageNotFound
from ..mended_text import mended
from . import chat_table, token_logprobs
from .rows import (
    MESSAGE_COLUMNS,
    cost_to_db,
    insert_row,
    message_from,
    now_to_db,
    sampling_to_db,
    token_ids_to_db,
    variant_to_db,
)

NOT_FOUND = "there is no such message, or it was deleted; open the chat again"


def number_as_temporary(connection: Connection) -> None:
    """Makes the ids of a database without messages begin at FIRST_TEMPORARY_MESSAGE_ID."""
    connection.execute(
        "INSERT INTO sqlite_sequence (name, seq) VALUES ('messages', ?)", (FIRST_TEMPORARY_MESSAGE_ID - 1,)
    )


def insert(
    connection: Connection,
    chat_id: str,
    parent_id: int | None,
    *,
    role: MessageRole,
    text: str,
    token_ids: Sequence[int] | None = None,
    model: str | None = None,
    sampling: SamplingParams | None = None,
    variant: ReplyVariant | None = None,
    cost: ReplyCost | None = None,
    finish_reason: FinishReason | None = None,
    status: MessageStatus = "done",
    error: str | None = None,
    created_at: int,
    writer: str | None = None,
) -> int:
    """Adds a message and gives its id."""
    return insert_row(
        connection,
        "messages",
        {
            "chat_id": chat_id,
            "parent_id": parent_id,
            "role": role,
            "text": mended(text),
            "token_ids": token_ids_to_db(token_ids),
            "model": model,
            "sampling": None if sampling is None else sampling_to_db(sampling),
            "variant": None if variant is None else variant_to_db(variant),
            **cost_to_db(cost),
            "finish_reason": finish_reason,
            "status": status,
            "error": None if error is None else mended(error),
            "created_at": created_at,
            "writer": writer,
        },
    )


def get(connection: Connection, message_id: int, *, deleted_too: bool = False) -> Message:
    """Raises MessageNotFound, also where the message or its chat is deleted, unless such are wanted too."""
    row = connection.execute(
        f"""
        SELECT {MESSAGE_COLUMNS} FROM messages JOIN chats ON chats.id = messages.chat_id
        WHERE messages.id = ? AND (? OR messages.deleted_by IS NULL AND chats.deleted_by IS NULL)
        """,
        (message_id, deleted_too),
    ).fetchone()
    if row is None:
        raise MessageNotFound(NOT_FOUND)
    return message_from(row)


def get_in_chat(connection: Connection, chat_id: str, message_id: int) -> Message:
    """Raises MessageNotFound, also for a message of another chat."""
    message = get(connection, message_id)
    if message.chat_id != chat_id:
        raise MessageNotFound(NOT_FOUND)
    return message


def tree(connection: Connection, chat_id: str) -> MessageTree:
    """Every message of a chat that isn't deleted."""
    rows = connection.execute(
        f"SELECT {MESSAGE_COLUMNS} FROM messages WHERE chat_id = ? AND deleted_by IS NULL ORDER BY id", (chat_id,)
    )
    return MessageTree(map(message_from, rows))


def add_turn(
    connection: Connection,
    chat_id: str,
    parent_id: int | None,
    text: str | None,
    replies: Sequence[NewReply],
    *,
    writer: str,
) -> Turn:
    """Adds the person's message, unless `text` is None, and a draft for each reply; shows the first of them."""
    assert text is not None or parent_id is not None, "a reply needs a message to answer"
    assert text is not None or replies, "nothing to add"
    chat = chat_table.get(connection, chat_id)
    if parent_id is not None:
        get_in_chat(connection, chat_id, parent_id)
    # An edit of the first message is a new first line.
    is_titled_by_it = text is not None and parent_id is None and not chat.has_own_title
    now = now_to_db(connection, chat.user)
    user_message_id = None
    if text is not None:
        user_message_id = insert(connection, chat_id, parent_id, role="user", text=text, created_at=now)
        parent_id = user_message_id
    reply_ids = [
        insert(
            connection,
            chat_id,
            parent_id,
            role="assistant",
            text=reply.text,
            token_ids=reply.token_ids,
            model=reply.model,
            sampling=reply.sampling,
            variant=reply.variant,
            status="draft",
            created_at=now,
            writer=writer,
        )
        for reply in replies
    ]
    for reply_id, reply in zip(reply_ids, replies, strict=True):
        token_logprobs.save(connection, reply_id, reply.logprobs)
    active_leaf_id = reply_ids[0] if reply_ids else user_message_id
    chat_table.touch(connection, chat_id, active_leaf_id=active_leaf_id, updated_at=now)
    if text is not None and is_titled_by_it:
        connection.execute("UPDATE chats SET title = ? WHERE id = ?", (mended(title_from(text)), chat_id))
    return Turn(
        user_message=None if user_message_id is None else get(connection, user_message_id),
        replies=tuple(get(connection, reply_id) for reply_id in reply_ids),
    )
