"""Messages of a chat in few words."""

from collections.abc import Sequence

from paged_chat.engine import ChatMessage


def system(text: str) -> ChatMessage:
    return ChatMessage("system", text)


def user(text: str) -> ChatMessage:
    return ChatMessage("user", text)


def assistant(text: str, token_ids: Sequence[int] | None = None) -> ChatMessage:
    return ChatMessage("assistant", text, None if token_ids is None else tuple(token_ids))
