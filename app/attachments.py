"""Text files that go with a message: their content stands before it, in a form that names each file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

MAX_ATTACHMENT_BYTES = 1_000_000


@dataclass(frozen=True, slots=True)
class Attachment:
    """A text file, read: its name without folders, and its text."""

    name: str
    text: str


def read_attachment(path: Path) -> Attachment:
    """Raises AttachmentRefused for a file that can't be read, isn't text, is empty, or is too large."""
    raise NotImplementedError


def attachment_from_bytes(name: str, content: bytes) -> Attachment:
    """Raises AttachmentRefused as `read_attachment` does; `name` may be a path, of which the last part counts."""
    raise NotImplementedError


def with_attachments(text: str, attachments: Sequence[Attachment]) -> str:
    """The message as it is stored and sent: each file under its name in a fence that it can't close, then the text."""
    raise NotImplementedError
