"""The bytes that each token stands for.

Text is bytes first: a token may hold half a character. Working with bytes, token by token, makes streamed and whole
decoding the same computation, so they cannot differ.
"""

import json
from typing import Any

import tokenizers

from .tokenizer_check import called


class TokenBytes:
    """What one token adds to a text, as UTF-8 bytes; looked up when first needed, then kept.

    Three kinds of decoders are understood, from the serialised decoder of tokenizers:
    byte level: each character of a token stands for one byte (GPT-2, Llama 3, Qwen, SmolLM).
    SentencePiece: "▁" is a space, `<0x41>` a byte; the first token loses its leading space (Llama 2, Mistral).
    any other: what the library's decoder adds after some fixed token. Good for decoders that look at one token.
    """

    def __init__(self, tokenizer: tokenizers.Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._decoder = _SentencePiece.understand(tokenizer) or _ByteLevel.understand(tokenizer) or _Other(tokenizer)
        added = tokenizer.get_added_tokens_decoder()
        self._special_ids = frozenset(token_id for token_id, token in added.items() if token.special)
        self._first: dict[int, bytes | None] = {}
        self._later: dict[int, bytes | None] = {}

    def of(self, token_id: int, first: bool, skip_special: bool = True) -> bytes | None:
        """Bytes that this token adds, at a text's start or later; None for tokens that leave no trace.

        Those are special tokens when they are skipped, and ids beyond the vocabulary (models pad their embeddings).
        """
        if skip_special and token_id in self._special_ids:
            return None
        kept = self._first if first else self._later
        if token_id not in kept:
            token = self._tokenizer.id_to_token(token_id)
            kept[token_id] = None if token is None else self._decoder.bytes_of(token_id, token, first)
        return kept[token_id]


class _ByteLevel:
    """GPT-2's spelling: every byte has a printable character (Radford et al. 2019, `bytes_to_unicode`)."""

    def __init__(self) -> None:
        printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
        others = [byte for byte in range(256) if byte not in printable]
        self._byte_of = {chr(byte): byte for byte in printable}
        self._byte_of |= {chr(256 + position): byte for position, byte in enumerate(others)}

    @classmethod
    def understand(cls, tokenizer: tokenizers.Tokenizer) -> "_ByteLevel | None":
        [*parts] = _decoder_parts(tokenizer)
        return cls() if [part["type"] for part in parts if part["type"] != "Fuse"] == ["ByteLevel"] else None

    def bytes_of(self, token_id: int, token: str, first: bool) -> bytes:
        try:
            return bytes([self._byte_of[character] for character in token])
        except KeyError:
            # An added token is spelled as itself, not in the byte alphabet.
            return token.encode()


class _SentencePiece:
    """SentencePiece's spelling, in either of the two ways tokenizers expresses it."""

    def __init__(self, space_mark: str, byte_fallback: bool, strip_one: bool, drop_first_marks: bool) -> None:
        self._space_mark = space_mark
        self._byte_fallback = byte_fallback
        self._strip_one = strip_one
        self._drop_first_marks = drop_first_marks

    @classmethod
    def understand(cls, tokenizer: tokenizers.Tokenizer) -> "_SentencePiece | None":
        space_mark = ""
        byte_fallback = strip_one = drop_first_marks = fused = False
        for part in _decoder_parts(tokenizer):
            match part:
                case {"type": "Replace", "pattern": {"String": str(mark)}, "content": " "} if len(mark) == 1:
                    space_mark = mark
                case {"type": "Metaspace", "replacement": str(mark)}:
                    space_mark = mark
                    drop_first_marks = part.get("prepend_scheme", "always") != "never"
                case {"type": "ByteFallback"}:
                    byte_fallback = True
                case {"type": "Fuse"}:
                    fused = True
                case {"type": "Strip", "content": " ", "start": 0 | 1 as start, "stop": 0} if fused:
                    strip_one = start == 1
                case _:
                    return None
        return cls(space_mark, byte_fallback, strip_one, drop_first_marks) if space_mark else None

    def bytes_of(self, token_id: int, token: str, first: bool) -> bytes:
        spelled = self._fallback_byte(token)
        if spelled is None:
            at_mark = "" if first and self._drop_first_marks else " "
            spelled = token.replace(self._space_mark, at_mark).encode()
        return spelled.removeprefix(b" ") if first and self._strip_one else spelled

    def _fallback_byte(self, token: str) -> bytes | None:
        if not (self._byte_fallback and len(token) == 6 and token.startswith("<0x") and token.endswith(">")):
            return None
        try:
            return bytes.fromhex(token[3:5])
        except ValueError:
            return None


class _Other:
    """Any other decoder, asked what a token adds after one that is always the same."""

    def __init__(self, tokenizer: tokenizers.Tokenizer) -> None:
        self._tokenizer = tokenizer
        plain = (token_id for token, token_id in sorted(tokenizer.get_vocab().items()) if token.isalpha())
        self._before = next(plain, 0)

    def bytes_of(self, token_id: int, token: str, first: bool) -> bytes:
        if first:
            return self._decode([token_id]).encode()
        return self._decode([self._before, token_id]).removeprefix(self._decode([self._before])).encode()

    def _decode(self, token_ids: list[int]) -> str:
        return called(self._tokenizer.decode, token_ids, skip_special_tokens=False)


def _decoder_parts(tokenizer: tokenizers.Tokenizer) -> list[dict[str, Any]]:
    """The decoder as tokenizer.json spells it, a sequence flattened one level; empty where there is none."""
    if tokenizer.decoder is None:
        return []
    state = json.loads(tokenizer.decoder.__getstate__())
    parts: list[dict[str, Any]] = state["decoders"] if state.get("type") == "Sequence" else [state]
    return parts
