"""Text files that go with a message: their content stands before it, in a form that names each file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath

from .errors import AttachmentRefused

MAX_ATTACHMENT_BYTES = 1_000_000

# What a text file of any language doesn't hold; tab, line feed, form feed, carriage return and escape are harmless.
_BINARY = re.compile("[\x00-\x08\x0e-\x1a\x1c-\x1f]")
_ATTACHED = re.compile("File ([^\n]+):\n(`{3,})\n(?s:.*?)\n\\2(?:\n\n|$)")
_FENCE = re.compile("^ {0,3}(`{3,})", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Attachment:
    """A text file, read: its name without folders, and its text."""

    name: str
    text: str


def read_attachment(path: Path) -> Attachment:
    """Raises AttachmentRefused for a file that can't be read, isn't text, is empty, or is too large."""
    try:
        if path.stat().st_size > MAX_ATTACHMENT_BYTES:
            raise _too_large(path.name, path.stat().st_size)
        return attachment_from_bytes(path.name, path.read_bytes())
    except OSError as error:
        raise AttachmentRefused(f"{path} can't be read: {error.strerror or error}") from error


def attachment_from_bytes(name: str, content: bytes) -> Attachment:
    """Raises AttachmentRefused as `read_attachment` does; `name` may be a path, of which the last part counts."""
    name = file_name(name)
    if len(content) > MAX_ATTACHMENT_BYTES:
        raise _too_large(name, len(content))
    encoding = "utf-16" if content.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig"
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError as error:
        raise AttachmentRefused(f"{name} isn't text in UTF-8: save it as such, or paste what matters") from error
    if _BINARY.search(text):
        raise AttachmentRefused(f"{name} isn't a text file: only text can be attached")
    if not text.strip():
        raise AttachmentRefused(f"{name} is empty")
    return Attachment(name, text.replace("\r\n", "\n"))


def file_name(path: str) -> str:
    """The last part of a path, in which nothing begins a line or turns letters around."""
    name = PureWindowsPath(PurePosixPath(path).name).name
    if name in ("", ".."):
        return "file"
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in name)


def with_attachments(text: str, attachments: Sequence[Attachment]) -> str:
    """The message as it is stored and sent: each file under its name in a fence that it can't close, then the text."""
    parts = []
    for attachment in attachments:
        fence = "`" * max([3, *(len(found) + 1 for found in _FENCE.findall(attachment.text))])
        parts.append(f"File {attachment.name}:\n{fence}\n{attachment.text.rstrip()}\n{fence}")
    return "\n\n".join([*parts, text] if text else parts)


def without_attachments(message: str) -> str:
    """What `with_attachments` was given as a text; the first file's name where there was none."""
    name, position = "", 0
    while found := _ATTACHED.match(message, position):
        name, position = name or found[1], found.end()
    return message[position:] or name


def _too_large(name: str, num_bytes: int) -> AttachmentRefused:
    return AttachmentRefused(
        f"{name} has {num_bytes:,} bytes, and at most {MAX_ATTACHMENT_BYTES:,} can be attached: paste the part that "
        f"matters"
    )
