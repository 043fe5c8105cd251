"""The token ids of replies that were given as text, for when they come back as a part of the next question."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace

from paged_chat.engine import ChatMessage

MAX_REPLIES = 512


class ReplyMemory:
    """A chat that goes on sends its earlier replies as text; encoded anew, they often give other ids, and the cache
    would miss all that follows. So the very ids are put in their place. One for each model; of one event loop.
    """

    def __init__(self) -> None:
        self._ids: OrderedDict[tuple[str, str], tuple[int, ...]] = OrderedDict()  # by salt and text

    def remember(self, salt: str, text: str, token_ids: Sequence[int]) -> None:
        self._ids[salt, text] = tuple(token_ids)
        self._ids.move_to_end((salt, text))
        if len(self._ids) > MAX_REPLIES:
            self._ids.popitem(last=False)

    def recalled(self, salt: str, message: ChatMessage) -> ChatMessage:
        known = self._ids.get((salt, message.content)) if message.role == "assistant" else None
        return message if known is None else replace(message, token_ids=known)
