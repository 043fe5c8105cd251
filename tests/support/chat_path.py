"""A chat's path as a transcript is given it, and prompts of the tiny template spelled out."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from paged_chat.app.chats import Message
from tiny_tokenizer import BOS, END, spelled

WINDOW = 4096
NOW = datetime(2026, 11, 29, tzinfo=UTC)


class ChatPath:
    """A chat's path as it grows, of messages as the store gives them."""

    def __init__(self, messages: Sequence[Message] = (), chat_id: str = "c") -> None:
        self.messages = list(messages)
        self._chat_id = chat_id
        self._next_id = 1 + max((message.id for message in messages), default=0)

    def ask(self, text: str) -> "ChatPath":
        return self._add(role="user", text=text)

    def reply(self, text: str, token_ids: Sequence[int] | None = None, **fields: Any) -> "ChatPath":
        """A reply whose ids are a token a byte and the end token, unless others are given."""
        ids = (*spelled(text), END) if token_ids is None else tuple(token_ids)
        return self._add(role="assistant", text=text, token_ids=ids, **fields)

    def imported(self, text: str) -> "ChatPath":
        """A reply of which only the text is known."""
        return self._add(role="assistant", text=text)

    def branch(self, length: int) -> "ChatPath":
        """Another path that begins with so many of the messages; its new messages have ids of their own."""
        branch = ChatPath(self.messages[:length], self._chat_id)
        branch._next_id = self._next_id + 1000
        return branch

    def _add(self, **fields: Any) -> "ChatPath":
        parent_id = self.messages[-1].id if self.messages else None
        self.messages.append(
            Message(id=self._next_id, chat_id=self._chat_id, parent_id=parent_id, created_at=NOW, **fields)
        )
        self._next_id += 1
        return self


def prompt_of(text: str) -> tuple[int, ...]:
    """The tiny template's text as ids: </s> ends messages, nothing in them is a control token."""
    ids = [BOS]
    for part in text.split("</s>"):
        ids += [*spelled(part), END]
    return tuple(ids[:-1])


def long_path(num_turns: int) -> ChatPath:
    """Turns of 36 tokens: a question of 14, a reply of 5, two ends, and the names of the roles."""
    path = ChatPath()
    for turn in range(num_turns):
        path.ask(f"{turn:014}").reply(f"{turn:05}")
    return path
