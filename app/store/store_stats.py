"""What a store holds, in numbers."""

from __future__ import annotations

from dataclasses import dataclass
from sqlite3 import Connection


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreStats:
    """A user's chats, their messages, and what the replies took together; `num_bytes` is that of the whole database."""

    num_chats: int
    num_messages: int
    num_cached_tokens: int
    num_computed_tokens: int
    num_generated_tokens: int
    num_bytes: int


def read_stats(connection: Connection, user: str) -> StoreStats:
    (num_chats,) = connection.execute(
        "SELECT count(*) FROM chats WHERE user = ? AND deleted_by IS NULL", (user,)
    ).fetchone()
    num_messages, num_cached, num_computed, num_generated = connection.execute(
        """
        SELECT count(*), coalesce(sum(num_cached_tokens), 0), coalesce(sum(num_computed_tokens), 0),
            coalesce(sum(num_generated_tokens), 0)
        FROM messages JOIN chats ON chats.id = messages.chat_id
        WHERE user = ? AND chats.deleted_by IS NULL AND messages.deleted_by IS NULL
        """,
        (user,),
    ).fetchone()
    (num_bytes,) = connection.execute(
        "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size"
    ).fetchone()
    return StoreStats(
        num_chats=num_chats,
        num_messages=num_messages,
        num_cached_tokens=num_cached,
        num_computed_tokens=num_computed,
        num_generated_tokens=num_generated,
        num_bytes=num_bytes,
    )
