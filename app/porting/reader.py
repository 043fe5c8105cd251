"""Reads chats from a file of any format we know, which its content tells."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from io import SEEK_END, BufferedReader
from pathlib import Path
from typing import Any

from ..errors import ImportRefused
from ..imported_chat import ImportedChat
from . import own_json
from .archive import MAGIC, conversation_files, refusing_damage
from .chatgpt import chat_from_conversation
from .fields import Fields
from .json_source import MAX_FILE_BYTES, JsonSource, too_large
from .markdown_reader import MarkdownReader
from .role_lists import chat_from_messages, chat_from_object

KNOWN = (
    "paged-chat reads its own JSON and Markdown, ChatGPT's conversations.json (or the zip it comes in), and lists of "
    "messages with role and content"
)
# A file within the limit of bytes could otherwise hold more tiny things than the memory.
MAX_CHATS = 100_000
MAX_MESSAGES = 1_000_000
TOO_MANY = f"more than {MAX_CHATS:,} chats, or {MAX_MESSAGES:,} messages, the limit for a file; split it"


@dataclass(frozen=True, slots=True)
class ReadChats:
    """The chats of a file, and how many of which things in it a chat can't hold: {"tool messages": 3}."""

    chats: tuple[ImportedChat, ...]
    left_out: Counter[str]


def read_file(path: Path) -> ReadChats:
    """Raises ImportRefused, with the file's name and the place of the fault."""
    try:
        with path.open("rb") as stream:
            return read_stream(stream, path.name)
    except OSError as error:
        raise ImportRefused(f"{path}: can't be read: {error.strerror}") from error


def read_stream(stream: BufferedReader, name: str) -> ReadChats:
    """As `read_file`, of what is open already."""
    left_out = Counter[str]()
    chats: list[ImportedChat] = []
    num_messages = 0
    for chat in _chats(stream, name, left_out):
        chats.append(chat)
        num_messages += len(chat.messages)
        if len(chats) > MAX_CHATS or num_messages > MAX_MESSAGES:
            raise ImportRefused(f"{name}: {TOO_MANY}")
    return ReadChats(tuple(chats), left_out)


def _chats(stream: BufferedReader, name: str, left_out: Counter[str]) -> Iterator[ImportedChat]:
    begin = stream.peek(4)
    if begin.startswith(MAGIC):
        if not stream.seekable():
            raise ImportRefused(f"{name}: a zip can be read from a file only")
        with refusing_damage(name):
            for source in conversation_files(stream, name):
                yield from _JsonChats(source, left_out)
        return
    if stream.seekable():  # then its size is known before it is read; a zip may be larger, most of it are pictures
        num_bytes = stream.seek(0, SEEK_END)
        stream.seek(0)
        if num_bytes > MAX_FILE_BYTES:
            raise ImportRefused(f"{name}: {too_large(MAX_FILE_BYTES)}")
    if begin.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"<"):
        yield from MarkdownReader(stream, name).chats()
    else:
        yield from _JsonChats(JsonSource(stream, name), left_out)


class _JsonChats:
    """The chats of JSON in any of the shapes that we know; those that have no date are made now."""

    def __init__(self, source: JsonSource, left_out: Counter[str]) -> None:
        self._source = source
        self._left_out = left_out
        self._now = datetime.now(UTC)

    def __iter__(self) -> Iterator[ImportedChat]:
        match self._source.peek():
            case "[":
                yield from self._of_list()
                self._source.expect_end()
            case "{":
                yield from self._of_objects()
            case "":
                self._source.refuse("the file is empty")
            case _:
                self._source.refuse(f"not a format of chats: {KNOWN}")

    def _of_list(self) -> Iterator[ImportedChat]:
        source = self._source
        messages: list[Fields] = []  # where the list is itself a chat
        for index in source.items():
            value = source.value()
            place = f"[{index}]"
            if messages or (index == 0 and isinstance(value, dict) and "role" in value):
                messages.append(Fields(value, source.name, place))
                if len(messages) > MAX_MESSAGES:
                    source.refuse(TOO_MANY)
                continue
            if isinstance(value, list):
                numbered = Fields({place: value}, source.name, "")
                yield chat_from_messages(numbered.each(place), self._left_out, self._now)
            else:
                yield self._of_object(Fields(value, source.name, place))
        if messages:
            yield chat_from_messages(messages, self._left_out, self._now)

    def _of_objects(self) -> Iterator[ImportedChat]:
        """Our export, or a chat that is an object, or one such chat on each line."""
        source = self._source
        are_several = False
        while source.peek():
            line = source.line
            members: dict[str, Any] = {}
            are_read = False
            for key in source.members():
                if key == "chats" and own_json.is_own(members) and source.peek() == "[":
                    yield from own_json.read_chats(source, members)
                    are_read = True
                else:
                    members[key] = source.value()
            if own_json.is_own(members):
                source.expect_end()
                if not are_read:
                    yield from own_json.chats_from(members, source.name)
                return
            are_several = are_several or source.peek() != ""
            name = f"{source.name}: line {line}" if are_several else source.name
            yield self._of_object(Fields(members, name, ""))

    def _of_object(self, fields: Fields) -> ImportedChat:
        if "mapping" in fields:
            return chat_from_conversation(fields, self._left_out, self._now)
        if "messages" in fields:
            return chat_from_object(fields, self._left_out, self._now)
        return fields.refuse(None, f"isn't a chat: {KNOWN}")
