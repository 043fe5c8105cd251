"""Our JSON: chats with their whole trees, exactly as they are stored."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, TextIO

from ..chats import Chat, MessageTree
from ..imported_chat import ImportedChat
from .chat_record import VERSION, chat_from, chat_record
from .fields import Fields
from .json_source import JsonSource

FORMAT = "paged-chat"


def write_json(chats: Iterable[tuple[Chat, MessageTree]], out: TextIO) -> None:
    """Writes one JSON object, in it a line for each chat, so that no more than one chat is held in memory."""
    head = {"format": FORMAT, "version": VERSION, "exported_at": datetime.now(UTC).isoformat(timespec="seconds")}
    out.write(f'{json.dumps(head)[:-1]}, "chats": [')
    separator = "\n"
    for chat, tree in chats:
        out.write(separator + json.dumps(chat_record(chat, tree), ensure_ascii=False, allow_nan=False))
        separator = ",\n"
    out.write("\n]}\n")


def is_own(head: Mapping[str, Any]) -> bool:
    """An object with these members is an export of ours."""
    return head.get("format") == FORMAT


def read_chats(source: JsonSource, head: Mapping[str, Any]) -> Iterator[ImportedChat]:
    """The chats of the list that comes next, one by one, in an object that began with `head`."""
    _check_version(head, source.name)
    for index in source.items():
        yield chat_from(Fields(source.value(), source.name, f"chats[{index}]"))


def chats_from(members: Mapping[str, Any], file_name: str) -> Iterator[ImportedChat]:
    """The chats of an object whose members another program has reordered, so that it was decoded whole."""
    _check_version(members, file_name)
    for fields in Fields(members, file_name, "").each("chats"):
        yield chat_from(fields)


def _check_version(head: Mapping[str, Any], file_name: str) -> None:
    fields = Fields(head, file_name, "")
    version = fields.whole("version")
    if version > VERSION:
        fields.refuse(
            "version",
            f"is {version}, from a newer paged-chat; this one reads version {VERSION}: update it, then import again",
        )
