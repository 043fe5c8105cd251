"""Token ids to text while they arrive."""

import codecs
from collections.abc import Iterable, Sequence
from copy import copy

from .tokenizer import Tokenizer


class Detokenizer:
    """Streams the text of one reply.

    Always: the texts returned so far, joined, are a prefix of the final text
            the final text == tokenizer.decode(all ids) without a character that is still incomplete at the very end

    Nothing but the bytes of an unfinished character is ever held back (3 at most), so a push costs O(1) a token, and
    nothing is left to say at the end: a character that the end of the reply cuts off is dropped. U+FFFD appears only
    for bytes that no later token can turn into a character. Special tokens leave no trace, not even inside a character.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._token_bytes = tokenizer.token_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._at_start = True

    def fork(self) -> "Detokenizer":
        """One that goes on from here by itself."""
        other = copy(self)
        other._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        other._decoder.setstate(self._decoder.getstate())
        return other

    def push(self, token_ids: Iterable[int]) -> str:
        """Take the next ids; return the text that is now certain."""
        added = bytearray()
        for token_id in token_ids:
            spelled = self._token_bytes.of(token_id, self._at_start)
            if spelled is not None:
                added += spelled
                self._at_start = False
        return self._decoder.decode(bytes(added))


def whole_characters(tokenizer: Tokenizer, token_ids: Sequence[int]) -> list[int]:
    """The ids up to where they make whole characters: a text that goes on behind them begins with one, too."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    num_whole = 0
    for position, token_id in enumerate(token_ids):
        decoder.decode(tokenizer.token_bytes.of(token_id, first=False) or b"")
        if not decoder.getstate()[0]:
            num_whole = position + 1
    return list(token_ids[:num_whole])
