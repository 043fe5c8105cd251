"""Reads back what `markdown` wrote, edited or not."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from io import BytesIO
from itertools import chain, pairwise
from typing import BinaryIO, NoReturn

from ..errors import ImportRefused
from ..imported_chat import ImportedChat
from .chat_record import VERSION, chat_from
from .fields import Fields, shown
from .json_source import CHUNK_BYTES, JsonSource
from .markdown import MARK, digest_of

MAX_BYTES = 1 << 27

_MARK_LINE = re.compile(rf"^{MARK}(.*)\n?", re.MULTILINE)
_MARK = re.compile(r"(?:(chat|message) ([0-9]{1,18})|(system|branches|record))( closed)?( -->)?")
_HEADING = re.compile(r"## [^\n]*\n\n")
_ESCAPED_MARK = re.compile(rf"^\\(?=\\*{MARK})", re.MULTILINE)
_RECORD_END = "\n-->"


@dataclass(slots=True)
class Section:
    """A comment of ours and what follows it, up to the next one."""

    kind: str  # chat, system, message, branches or record
    number: int | None  # a chat's version, a message's id
    is_closed: bool  # the last line was added to the text
    line: int  # the comment's
    content: str


@dataclass(slots=True)
class Document:
    """The sections of one chat, as far as they are read."""

    system_prompt: str | None = None
    texts: dict[int, str] = field(default_factory=dict)  # by message id
    lines: dict[int, int] = field(default_factory=dict)  # where each message stands


def _pieces(stream: BinaryIO, max_bytes: int) -> Iterator[bytes]:
    """Not read at once, for which the memory of the largest file would be taken; ends behind the limit."""
    num_bytes = 0
    while num_bytes <= max_bytes and (piece := stream.read(CHUNK_BYTES)):
        num_bytes += len(piece)
        yield piece


class MarkdownReader:
    """Reads the chats of one Markdown file; every fault is an ImportRefused with the file's name and a line."""

    def __init__(self, stream: BinaryIO, name: str, max_bytes: int = MAX_BYTES) -> None:
        self._name = name
        content = b"".join(_pieces(stream, max_bytes))
        if len(content) > max_bytes:
            raise ImportRefused(f"{name}: larger than {max_bytes:,} bytes, the limit for Markdown; export to JSON")
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            at = error.start + len(content) - len(error.object)
            raise ImportRefused(f"{name}: byte {at} (0x{content[at]:02x}) isn't UTF-8: {error.reason}") from None
        first_line = text[: text.find("\n") + 1]
        # We end lines with LF alone. Where they end otherwise, an editor has changed the whole file, texts too.
        self._text = text.replace("\r\n", "\n") if first_line.endswith("\r\n") else text

    def chats(self) -> Iterator[ImportedChat]:
        document: Document | None = None
        for section in self._sections():
            if section.kind == "chat":
                if document is not None:
                    self._fail(section.line, "the chat before this one has no record at its end")
                self._check_version(section)
                document = Document()
            elif document is None:
                self._fail(section.line, f"a chat must begin with {MARK}chat {VERSION} -->")
            elif section.kind == "system":
                if document.system_prompt is not None:
                    self._fail(section.line, "the chat has a system prompt already")
                document.system_prompt = self._body(section)
            elif section.kind == "message":
                assert section.number is not None, "the pattern asks for a number"
                if section.number in document.texts:
                    self._fail(
                        section.line, f"message {section.number} is in line {document.lines[section.number]} too"
                    )
                document.texts[section.number] = self._body(section)
                document.lines[section.number] = section.line
            elif section.kind == "record":
                yield self._chat(section, document)
                document = None
        if document is not None:
            self._fail(self._text.count("\n") + 1, f"the file ends too early: {MARK}record is missing")

    def _sections(self) -> Iterator[Section]:
        """All comments of ours, in order; nothing but white space stands before the first."""
        marks = _MARK_LINE.finditer(self._text)
        first = next(marks, None)
        if first is None or self._text[: first.start()].strip():
            self._fail(1, f"not Markdown that paged-chat wrote, which begins with {MARK}chat {VERSION} -->")
        line = 1 + self._text.count("\n", 0, first.start())
        for mark, following in pairwise(chain([first], marks, [None])):
            assert mark is not None, "only what follows the last one is None"
            parsed = _MARK.fullmatch(mark[1])
            if parsed is None or (parsed[5] is None) != (parsed[3] == "record"):
                self._fail(line, f"{shown(mark[0].strip())} isn't a comment that this version knows")
            end = following.start() if following is not None else len(self._text)
            yield Section(
                kind=parsed[1] or parsed[3],
                number=int(parsed[2]) if parsed[2] else None,
                is_closed=parsed[4] is not None,
                line=line,
                content=self._text[mark.end() : end],
            )
            line += self._text.count("\n", mark.start(), end)

    def _check_version(self, section: Section) -> None:
        if section.number is not None and section.number > VERSION:
            self._fail(
                section.line,
                f"version {section.number}, from a newer paged-chat; this one reads version {VERSION}: "
                "update it, then import again",
            )

    def _body(self, section: Section) -> str:
        """The text of a message or system prompt, without what was added to it."""
        heading = _HEADING.match(section.content)
        if heading is None:
            self._fail(section.line + 1, "a heading (## …) and an empty line must stand before a text")
        text = section.content[heading.end() :]
        # Without the empty line, which an editor may have taken away, the text still ends with its line.
        text = text.removesuffix("\n").removesuffix("\n")
        text = _ESCAPED_MARK.sub("", text)
        return text.rpartition("\n")[0] if section.is_closed else text

    def _chat(self, section: Section, document: Document) -> ImportedChat:
        record_text, end, rest = section.content.partition(_RECORD_END)
        if not end or rest.strip():
            self._fail(section.line, "the record must end with a line --> and nothing may follow it")
        source = JsonSource(BytesIO(record_text.encode()), self._name, first_line=section.line + 1)
        record = source.value()
        source.expect_end()
        name = f"{self._name}: record in line {section.line}"
        fields = Fields(record, name, "")
        messages = fields.each("messages")
        for message, values in zip(messages, record["messages"], strict=True):
            message_id = message.whole("id")
            if message_id not in document.texts:
                message.refuse("id", f"is {message_id}, which no text in the file has")
            values["text"] = text = document.texts.pop(message_id)
            if values.pop("digest", None) != digest_of(text):
                values.pop("token_ids", None)
        for message_id in document.texts:
            self._fail(document.lines[message_id], f"message {message_id} isn't in the chat's record")
        record["system_prompt"] = document.system_prompt
        return chat_from(Fields(record, name, ""))

    def _fail(self, line: int, fault: str) -> NoReturn:
        raise ImportRefused(f"{self._name}: line {line}: {fault}")
