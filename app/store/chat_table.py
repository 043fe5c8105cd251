"""Chats in the database: each function is part of one reading or one transaction of the store."""

from __future__ import annotations

import secrets
from collections.abc import Collection
from sqlite3 import Connection
from typing import Any, TypedDict

from paged_chat.engine.errors import InvalidParameter
from paged_chat.engine.request import SamplingParams

from ..chats import UNTITLED, Chat, own_title, title_from
from ..errors import ChatNotFound
from ..mended_text import mended
from .rows import (
    CHAT_COLUMNS,
    chat_from,
    insert_row,
    sampling_to_db,
    tags_to_db,
    time_to_db,
)

NOT_FOUND = "there is no such chat, or it was deleted; look at the list of chats"
MAX_LIMIT = 2**31 - 1


class ChatChanges(TypedDict, total=False):
    """What `Store.update_chat` may change; a title is the person's own, an empty one the first line again."""

    title: str
    is_pinned: bool
    is_archived: bool
    tags: tuple[str, ...]
    system_prompt: str | None
    model: str | None
    sampling: SamplingParams


def insert(
    connection: Connection,
    *,
    user: str,
    title: str,
    has_own_title: bool,
    is_pinned: bool = False,
    is_archived: bool = False,
    tags: tuple[str, ...],
    system_prompt: str | None,
    model: str | None,
    sampling: SamplingParams,
    created_at: int,
    updated_at: int,
) -> str:
    """Adds an empty chat and gives its id."""
    chat_id = secrets.token_hex(16)
    values = {
        "id": chat_id,
        "user": user,
        "title": mended(own_title(title) or UNTITLED),
        "has_own_title": has_own_title,
        "is_pinned": is_pinned,
        "is_archived": is_archived,
        "tags": tags_to_db(tags),
        "system_prompt": None if system_prompt is None else mended(system_prompt),
        "model": None if model is None else mended(model),
        "sampling": sampling_to_db(sampling),
        "created_at": created_at,
        "updated_at": updated_at,
    }
    insert_row(connection, "chats", values)
    return chat_id


def get(connection: Connection, chat_id: str, user: str | None = None) -> Chat:
    """Raises ChatNotFound; also, where a user is named, for a chat of somebody else."""
    row = connection.execute(
        f"SELECT {CHAT_COLUMNS} FROM chats WHERE id = ? AND deleted_by IS NULL AND user = coalesce(?, user)",
        (chat_id, user),
    ).fetchone()
    if row is None:
        raise ChatNotFound(NOT_FOUND)
    return chat_from(row)


def list_chats(
    connection: Connection, *, user: str, archived: bool | None, tag: str | None, limit: int | None, before: Chat | None
) -> list[Chat]:
    conditions = ["user = ?", "deleted_by IS NULL"]
    values: list[Any] = [user]
    if archived is not None:
        conditions.append("is_archived = ?")
        values.append(archived)
    if tag is not None:
        conditions.append("EXISTS (SELECT 1 FROM json_each(chats.tags) WHERE value = ?)")
        values.append(mended(tag))
    if before is not None:
        conditions.append("(is_pinned, updated_at, number) < (?, ?, (SELECT number FROM chats WHERE id = ?))")
        values += [before.is_pinned, time_to_db(before.updated_at), before.id]
    rows = connection.execute(
        f"SELECT {CHAT_COLUMNS} FROM chats WHERE {' AND '.join(conditions)} "
        "ORDER BY is_pinned DESC, updated_at DESC, number DESC LIMIT ?",
        [*values, -1 if limit is None else checked_limit(limit)],
    )
    return list(map(chat_from, rows))


def checked_limit(limit: int) -> int:
    """Raises InvalidParameter for a number of results that makes no sense."""
    if not 0 <= limit <= MAX_LIMIT:
        raise InvalidParameter(f"the limit must be a whole number from 0 to {MAX_LIMIT}, not {limit}")
    return limit


def list_tags(connection: Connection, user: str) -> list[str]:
    rows = connection.execute(
        "SELECT DISTINCT value FROM chats, json_each(chats.tags) WHERE user = ? AND deleted_by IS NULL ORDER BY value",
        (user,),
    )
    return [tag for (tag,) in rows]


def update(connection: Connection, chat_id: str, changes: ChatChanges) -> None:
    assert changes.keys() <= ChatChanges.__annotations__.keys(), f"no such changes: {sorted(changes)}"
    values: dict[str, Any] = dict(changes)
    if "title" in changes:
        title = own_title(changes["title"])
        values["title"] = mended(title) if title else _first_line(connection, chat_id)
        values["has_own_title"] = bool(title)
    if "tags" in changes:
        values["tags"] = tags_to_db(changes["tags"])
    for name in ("system_prompt", "model"):
        if values.get(name) is not None:
            values[name] = mended(values[name])
    if "sampling" in changes:
        values["sampling"] = sampling_to_db(changes["sampling"])
    touch(connection, chat_id, **values)


def _first_line(connection: Connection, chat_id: str) -> str:
    """The title of a chat that has none of its own."""
    first = connection.execute(
        "SELECT text FROM messages WHERE chat_id = ? AND parent_id IS NULL AND role = 'user' AND deleted_by IS NULL "
        "ORDER BY id DESC LIMIT 1",
        (chat_id,),
    ).fetchone()
    return UNTITLED if first is None else title_from(first["text"])


def touch(connection: Connection, chat_id: str, **values: Any) -> None:
    """Sets columns of a chat that isn't deleted and counts its version up; raises ChatNotFound."""
    columns = ", ".join(["version = version + 1", *(f"{column} = :{column}" for column in values)])
    found = connection.execute(
        f"UPDATE chats SET {columns} WHERE id = :chat_id AND deleted_by IS NULL", {**values, "chat_id": chat_id}
    )
    if found.rowcount == 0:
        raise ChatNotFound(NOT_FOUND)


def list_version(connection: Connection, *, beside: Collection[str]) -> tuple[int, int]:
    """The number of chats, deleted ones too, and the sum of their versions."""
    marks = ", ".join("?" * len(beside))
    count, total = connection.execute(
        f"SELECT count(*), coalesce(sum(version), 0) FROM chats WHERE id NOT IN ({marks})", tuple(beside)
    ).fetchone()
    return count, total
