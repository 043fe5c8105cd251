"""What widgets tell the screen; it asks the service."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from textual.message import Message


@dataclass
class PromptSent(Message):
    """The person pressed Enter; `text` is as it stood in the prompt, `pastes` what its words for pastes stand for."""

    text: str
    pastes: dict[str, str] = field(default_factory=dict)

    @property
    def expanded(self) -> str:
        """The text with what was pasted in the place of the words for it."""
        return expand(self.text, self.pastes)


def expand(text: str, pastes: Mapping[str, str]) -> str:
    for word, pasted in pastes.items():
        text = text.replace(word, pasted)
    return text


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


@dataclass
class TokenPointed(Message):
    """The cursor in a reply's text came to a token."""

    index: int
