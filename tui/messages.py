"""What widgets tell the screen; it asks the service."""

from __future__ import annotations

from dataclasses import dataclass

from textual.message import Message


@dataclass
class PromptSent(Message):
    """The person pressed Enter; `text` is as it stands in the prompt."""

    text: str


@dataclass
class PromptChanged(Message):
    """There is other text in the prompt."""

    text: str


@dataclass
class ChatChosen(Message):
    """A chat was chosen in the list."""

    chat_id: str


@dataclass
class MessageSelected(Message):
    """The message cursor came to a message."""

    message_id: int


@dataclass
class ReplyPicked(Message):
    """One of several replies side by side is the one to go on with."""

    message_id: int


@dataclass
class CodeCopied(Message):
    """A code block's copy button was pressed."""

    code: str


@dataclass
class BlockPointed(Message):
    """The cursor in the pool's map came to a block."""

    block_id: int
