"""The text functions of a model, asked of an engine in another process."""

from __future__ import annotations

from collections.abc import Sequence

from paged_chat.engine import ChatMessage

from ..engine_query import text_query
from ..service.served_engine import ServedEngine
from ..transcript.chat_model import ChatModel


@text_query
def encode_text(engine: ChatModel, text: str) -> list[int]:
    return engine.encode(text)


@text_query
def encode_prompt(engine: ChatModel, text: str) -> list[int]:
    return engine.encode_prompt(text)


@text_query
def encode_chat(engine: ChatModel, messages: tuple[ChatMessage, ...]) -> list[int]:
    return engine.encode_chat(messages)


@text_query
def resumable_ids(engine: ChatModel, reply_token_ids: tuple[int, ...]) -> list[int]:
    return engine.resumable(reply_token_ids)


@text_query
def decode_ids(engine: ChatModel, token_ids: tuple[int, ...]) -> str:
    return engine.decode(token_ids)


@text_query
def token_bytes(engine: ChatModel, token_id: int) -> tuple[int, ...]:
    return tuple(engine.token_bytes(token_id))


class RemoteText:
    """A ChatModel whose functions are answered by another process; each call waits for its answer."""

    def __init__(self, served: ServedEngine) -> None:
        self._served = served

    def encode(self, text: str) -> list[int]:
        return self._served.call(encode_text.ask(text)).result()

    def encode_prompt(self, text: str) -> list[int]:
        return self._served.call(encode_prompt.ask(text)).result()

    def encode_chat(self, messages: Sequence[ChatMessage]) -> list[int]:
        return self._served.call(encode_chat.ask(tuple(messages))).result()

    def resumable(self, reply_token_ids: Sequence[int]) -> list[int]:
        return self._served.call(resumable_ids.ask(tuple(reply_token_ids))).result()

    def decode(self, token_ids: Sequence[int]) -> str:
        return self._served.call(decode_ids.ask(tuple(token_ids))).result()

    def token_bytes(self, token_id: int) -> bytes:
        return bytes(self._served.call(token_bytes.ask(token_id)).result())
