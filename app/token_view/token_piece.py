"""What one token says, for people to look at: nothing of it hidden, nothing that a screen would obey."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..engine_query import text_query

if TYPE_CHECKING:
    from ..transcript.chat_model import ChatModel

# Where bytes make no character by themselves, Python puts these.
_LONE_BYTES = re.compile("[\udc80-\udcff]+")
_HIDDEN = ("Cc", "Cf", "Zl", "Zp")
_EDGE_SPACES = re.compile("^ +| +$")


@dataclass(frozen=True, slots=True)
class TokenPiece:
    """A token and the text that it stands for.

    text: half a character reads `⟨F0 9F⟩`, a character that isn't seen `⟨U+200B⟩`, a control token as the vocabulary
        spells it. Line feeds and tabs are themselves.
    """

    token_id: int
    text: str

    @property
    def flowing(self) -> str:
        """Among the others of its reply: a line feed is seen where it breaks the line."""
        return self.text.replace("\n", "⏎\n").replace("\t", "⇥\t")

    @property
    def label(self) -> str:
        """By itself, in a list: on one line, with the spaces at its edges seen; its id if it says nothing."""
        seen = _EDGE_SPACES.sub(lambda spaces: "␣" * len(spaces[0]), self.text)
        return seen.replace("\n", "⏎").replace("\t", "⇥") or f"token {self.token_id}"


def legible(spelled: bytes) -> str:
    """The text of some bytes, in which everything is seen."""
    text = spelled.decode("utf-8", "surrogateescape")
    shown = "".join(_seen(character) for character in text)
    return _LONE_BYTES.sub(lambda lone: f"⟨{' '.join(f'{ord(half) - 0xDC00:02X}' for half in lone[0])}⟩", shown)


def _seen(character: str) -> str:
    """Controls, formats and odd line ends hide, or turn the text around, or are orders to a terminal."""
    if character in "\n\t" or unicodedata.category(character) not in _HIDDEN:
        return character
    return f"⟨U+{ord(character):04X}⟩"


@text_query
def spell(engine: ChatModel, token_ids: tuple[int, ...]) -> tuple[TokenPiece, ...]:
    """A piece for each id, in their order."""
    return tuple(TokenPiece(token_id, legible(engine.token_bytes(token_id))) for token_id in token_ids)
