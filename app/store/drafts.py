"""Replies that grow: a draft belongs to the store that writes it, until it is finished.

Always: a draft has a writer. What the end of a process left is stopped by the next store, but keeps the name of its
writer: should that one have been taken for dead by mistake, it loses nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from sqlite3 import Connection
from typing import Any, Literal

from paged_chat.engine.request import FinishReason

from ..chats import KeptLogprobs, Message, ReplyCost
from ..errors import CannotContinue, MessageNotFound, ReplyFinished
from ..mended_text import mended
from ..transcript.miss_reason import MissReason
from . import message_table, miss_reasons, token_logprobs
from .rows import cost_to_db, now_to_db, token_ids_to_db
from .writer_id import is_alive

FinalStatus = Literal["done", "stopped", "failed"]


def save(
    connection: Connection,
    message_id: int,
    *,
    text: str,
    token_ids: Sequence[int],
    logprobs: KeptLogprobs,
    writer: str,
) -> None:
    """The reply so far; raises ReplyFinished where another writes it or nobody does."""
    _write(
        connection,
        message_id,
        writer,
        {"text": mended(text), "token_ids": token_ids_to_db(token_ids), "status": "draft"},
        logprobs,
    )


def finish(
    connection: Connection,
    message_id: int,
    *,
    text: str,
    token_ids: Sequence[int],
    logprobs: KeptLogprobs,
    status: FinalStatus,
    finish_reason: FinishReason | None,
    cost: ReplyCost | None,
    error: str | None,
    miss: MissReason | None,
    writer: str,
) -> Message:
    """The whole reply; nobody writes it from now on. Raises ReplyFinished as `save` does."""
    _write(
        connection,
        message_id,
        writer,
        {
            "text": mended(text),
            "token_ids": token_ids_to_db(token_ids),
            "status": status,
            "finish_reason": finish_reason,
            "error": None if error is None else mended(error),
            "writer": None,
            **cost_to_db(cost),
        },
        logprobs,
    )
    miss_reasons.save(connection, message_id, miss)
    chat_id, user = connection.execute(
        "SELECT chats.id, user FROM chats JOIN messages ON messages.chat_id = chats.id WHERE messages.id = ?",
        (message_id,),
    ).fetchone()
    connection.execute("UPDATE chats SET updated_at = ? WHERE id = ?", (now_to_db(connection, user), chat_id))
    return message_table.get(connection, message_id, deleted_too=True)


def reopen(connection: Connection, message_id: int, *, writer: str) -> Message:
    """Makes a reply that was cut short a draft again, to be continued by `writer`; raises CannotContinue."""
    message = message_table.get(connection, message_id)
    if message.role != "assistant":
        raise CannotContinue("only a reply can be continued; send a message to get one")
    if message.status == "draft":
        raise CannotContinue("this reply is being written already; wait for its end")
    if message.status == "done" and message.finish_reason != "length":
        raise CannotContinue("this reply is complete; retry it, or send another message")
    if connection.execute(
        "SELECT 1 FROM messages WHERE parent_id = ? AND deleted_by IS NULL", (message_id,)
    ).fetchone():
        raise CannotContinue("the chat goes on below this reply already; retry it, or delete what follows")
    connection.execute(
        "UPDATE messages SET status = 'draft', finish_reason = NULL, error = NULL, writer = ? WHERE id = ?",
        (writer, message_id),
    )
    _touch_chat_of(connection, message_id)
    return message_table.get(connection, message_id)


def stop_orphans(connection: Connection) -> int:
    """Stops the drafts of writers that don't live any more, and gives their number."""
    writers = [
        writer for (writer,) in connection.execute("SELECT DISTINCT writer FROM messages WHERE status = 'draft'")
    ]
    return sum(stop_all_of(connection, writer) for writer in writers if not is_alive(writer))


def stop_all_of(connection: Connection, writer: str) -> int:
    """Stops the drafts of one writer, and gives their number."""
    connection.execute(
        """
        UPDATE chats SET version = version + 1
        WHERE id IN (SELECT chat_id FROM messages WHERE status = 'draft' AND writer = ?)
        """,
        (writer,),
    )
    return connection.execute(
        "UPDATE messages SET status = 'stopped', finish_reason = 'abort' WHERE status = 'draft' AND writer = ?",
        (writer,),
    ).rowcount


def _write(
    connection: Connection, message_id: int, writer: str, values: dict[str, Any], logprobs: KeptLogprobs
) -> None:
    columns = ", ".join(f"{column} = :{column}" for column in values)
    written = connection.execute(
        f"UPDATE messages SET {columns} WHERE id = :message_id AND writer = :me",
        {**values, "message_id": message_id, "me": writer},
    )
    if written.rowcount == 0:
        if connection.execute("SELECT 1 FROM messages WHERE id = ?", (message_id,)).fetchone() is None:
            raise MessageNotFound(message_table.NOT_FOUND)
        raise ReplyFinished("this reply is finished, or another program goes on with it; open the chat again")
    token_logprobs.save(connection, message_id, logprobs)
    _touch_chat_of(connection, message_id)


def _touch_chat_of(connection: Connection, message_id: int) -> None:
    connection.execute(
        "UPDATE chats SET version = version + 1 WHERE id = (SELECT chat_id FROM messages WHERE id = ?)", (message_id,)
    )
