"""The text functions of an engine without the engine: what a transcript needs of a model."""

import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from chat_templates import encoder
from paged_chat.engine import ChatMessage
from paged_chat.engine.text.detokenizer import whole_characters
from paged_chat.engine.text.tokenizer import Tokenizer
from tiny_tokenizer import TEMPLATE, tokenizer_in


class TextModel:
    """By default with the tiny tokenizer (a token a byte, "he" is one too; 1 is <s>, 2 is </s>) and its template."""

    def __init__(self, source: str = TEMPLATE, tokenizer: Tokenizer | None = None) -> None:
        self.tokenizer = tokenizer or tiny_tokenizer()
        self._encoder = encoder(self.tokenizer, source)
        self.num_encoded_chars = 0

    def encode(self, text: str) -> list[int]:
        self.num_encoded_chars += len(text)
        return self.tokenizer.encode(text)

    def encode_prompt(self, text: str) -> list[int]:
        return self.tokenizer.encode_prompt(text)

    def encode_chat(self, messages: Sequence[ChatMessage]) -> list[int]:
        return self._encoder.encode(messages)

    def resumable(self, reply_token_ids: Sequence[int]) -> list[int]:
        return whole_characters(self.tokenizer, self.tokenizer.without_end(reply_token_ids))

    def token_bytes(self, token_id: int) -> bytes:
        return self.tokenizer.token_bytes.of(token_id, first=False, skip_special=False) or b""

    def decode(self, token_ids: Sequence[int]) -> str:
        return self.tokenizer.decode(token_ids)

    def shown(self, token_ids: Sequence[int]) -> str:
        """With control tokens, for people to look at."""
        return self.tokenizer.decode(token_ids, skip_special=False)


@cache
def tiny_tokenizer() -> Tokenizer:
    with tempfile.TemporaryDirectory() as folder:
        return tokenizer_in(Path(folder))
