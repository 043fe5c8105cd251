"""Rows of the database as values, and back."""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from sqlite3 import Connection, Row
from typing import Any

from paged_chat.engine.request import SamplingParams

from ..chats import Chat, Message, ReplyCost, ReplyVariant
from ..mended_text import mended

# A chat in memory is a temporary one: such a database has no file.
CHAT_COLUMNS = """
    chats.id, chats.user, chats.title, chats.has_own_title, chats.is_pinned, chats.is_archived, chats.tags,
    chats.system_prompt, chats.model, chats.sampling, chats.active_leaf_id, chats.version, chats.created_at,
    chats.updated_at, (SELECT file = '' FROM pragma_database_list WHERE name = 'main') AS is_temporary
"""
MESSAGE_COLUMNS = """
    messages.id, messages.chat_id, messages.parent_id, messages.role, messages.text, messages.token_ids, messages.model,
    messages.sampling, messages.num_cached_tokens, messages.num_computed_tokens, messages.num_generated_tokens,
    messages.ttft_ms, messages.tokens_per_s, messages.num_accepted_tokens, messages.finish_reason, messages.status,
    messages.error, messages.created_at, messages.variant
"""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_DEFAULT_SAMPLING = asdict(SamplingParams())


def chat_from(row: Row) -> Chat:
    return Chat(
        id=row["id"],
        user=row["user"],
        title=row["title"],
        has_own_title=bool(row["has_own_title"]),
        is_pinned=bool(row["is_pinned"]),
        is_archived=bool(row["is_archived"]),
        is_temporary=bool(row["is_temporary"]),
        tags=tags_from(row["tags"]),
        system_prompt=row["system_prompt"],
        model=row["model"],
        sampling=sampling_from(row["sampling"]),
        active_leaf_id=row["active_leaf_id"],
        version=row["version"],
        created_at=time_from(row["created_at"]),
        updated_at=time_from(row["updated_at"]),
    )


def message_from(row: Row) -> Message:
    return Message(
        id=row["id"],
        chat_id=row["chat_id"],
        parent_id=row["parent_id"],
        role=row["role"],
        text=row["text"],
        token_ids=token_ids_from(row["token_ids"]),
        model=row["model"],
        sampling=None if row["sampling"] is None else sampling_from(row["sampling"]),
        variant=None if row["variant"] is None else variant_from(row["variant"]),
        cost=None if row["num_cached_tokens"] is None else _cost_from(row),
        finish_reason=row["finish_reason"],
        status=row["status"],
        error=row["error"],
        created_at=time_from(row["created_at"]),
    )


def _cost_from(row: Row) -> ReplyCost:
    return ReplyCost(
        num_cached_tokens=row["num_cached_tokens"],
        num_computed_tokens=row["num_computed_tokens"],
        num_generated_tokens=row["num_generated_tokens"],
        ttft_ms=row["ttft_ms"],
        tokens_per_s=row["tokens_per_s"],
        num_accepted_tokens=row["num_accepted_tokens"] or 0,
    )


def cost_to_db(cost: ReplyCost | None) -> dict[str, float | None]:
    if cost is None:
        return dict.fromkeys(field.name for field in fields(ReplyCost))
    return asdict(cost)


def insert_row(connection: Connection, table: str, values: Mapping[str, Any]) -> int:
    """Adds a row and gives its rowid."""
    names = ", ".join(values)
    places = ", ".join(f":{name}" for name in values)
    row_id = connection.execute(f"INSERT INTO {table} ({names}) VALUES ({places})", values).lastrowid
    assert row_id is not None
    return row_id


def time_to_db(moment: datetime) -> int:
    """Microseconds since 1970; `moment` has a time zone."""
    return (moment - _EPOCH) // _MICROSECOND


def time_from(microseconds: int) -> datetime:
    return _EPOCH + microseconds * _MICROSECOND


def now_to_db(connection: Connection, user: str) -> int:
    """A moment after every use of the user's chats, also where the clock has been set back since.

    So a list by time is in the order of use, as long as no chat comes into it with a time that is still to come.
    """
    newest = [
        connection.execute(
            "SELECT coalesce(max(updated_at), 0) FROM chats WHERE user = ? AND is_pinned = ?", (user, is_pinned)
        ).fetchone()[0]
        for is_pinned in (False, True)  # each is one step in the index
    ]
    return max(time.time_ns() // 1000, 1 + max(newest))


def token_ids_to_db(token_ids: Sequence[int] | None) -> bytes | None:
    return None if token_ids is None else struct.pack(f"<{len(token_ids)}I", *token_ids)


def token_ids_from(packed: bytes | None) -> tuple[int, ...] | None:
    return None if packed is None else struct.unpack(f"<{len(packed) // 4}I", packed)


def sampling_to_db(sampling: SamplingParams) -> str:
    """What differs from the defaults: a chat has a reply's sampling hundreds of times, and mostly a seed."""
    changed = {name: value for name, value in asdict(sampling).items() if value != _DEFAULT_SAMPLING[name]}
    return json.dumps(changed, sort_keys=True, separators=(",", ":"))


@lru_cache(maxsize=4096)
def sampling_from(text: str) -> SamplingParams:
    return SamplingParams(**json.loads(text))


def variant_to_db(variant: ReplyVariant) -> str:
    texts = {name: mended(text) for name, text in asdict(variant).items() if text is not None}
    return json.dumps(texts, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


@lru_cache(maxsize=1024)
def variant_from(text: str) -> ReplyVariant:
    return ReplyVariant(**json.loads(text))


def tags_to_db(tags: tuple[str, ...]) -> str:
    """As a JSON list, each tag once."""
    return json.dumps([mended(tag) for tag in dict.fromkeys(tags)], ensure_ascii=False)


@lru_cache(maxsize=1024)
def tags_from(text: str) -> tuple[str, ...]:
    return tuple(json.loads(text))
