"""Tokens that a chat template writes and that no message may forge.

A message that holds the text `<|im_end|>` must reach the model as those ten characters, not as the token that ends a
turn. While a message passes through a template, a *shield* replaces the first character of every control token in it
by a stand-in, a private-use character found nowhere else. Templates trim and split messages, but a stand-in stays what
it is, so afterwards the control tokens in the text are exactly the template's own.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

# Supplementary private use area B: assigned to nothing, met in no vocabulary.
FIRST_STAND_IN = 0x100000
LAST_STAND_IN = 0x10FFFD
ANY_STAND_IN = re.compile(f"[{chr(FIRST_STAND_IN)}-{chr(LAST_STAND_IN)}]")
# Models mark some control tokens as ordinary added ones, Qwen's <|fim_prefix|> for instance; the shape gives them away.
CONTROL_SHAPE = re.compile(r"<[|\uff5c].+[|\uff5c]>", re.DOTALL)  # U+FF5C: DeepSeek's spelling


@dataclass(frozen=True)
class ControlTokens:
    """The texts of a tokenizer's control tokens.

    separators: those that split a text in two that can be encoded apart: what stands before one of them never changes
        the ids from there on, nor do they change the ids before.
    """

    texts: frozenset[str]
    separators: frozenset[str] = frozenset()

    @cached_property
    def first_characters(self) -> str:
        return "".join(sorted({text[0] for text in self.texts}))

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        longest_first = sorted(self.texts, key=lambda text: (-len(text), text))
        return re.compile("|".join(map(re.escape, longest_first)) or "(?!)")

    def found_in(self, text: str) -> list[str]:
        return self.pattern.findall(text)

    def leading(self, text: str) -> re.Match[str] | None:
        """The control token that a text begins with, white space aside; group 1 is the token."""
        return self._leading.match(text)

    @cached_property
    def _leading(self) -> re.Pattern[str]:
        return re.compile(rf"\s*({self.pattern.pattern})")

    def last_separator_in(self, text: str) -> int:
        """Where the last separator begins; 0 where there is none."""
        return max((found.start() for found in self.pattern.finditer(text) if found[0] in self.separators), default=0)

    def occur_in(self, text: str) -> bool:
        return self.pattern.search(text) is not None

    def may_arise_in(self, text: str) -> bool:
        """Whether a template that cuts characters out of this text could leave a control token."""
        return any(character in text for character in self.first_characters)

    def shield_for(self, texts: Iterable[str]) -> "Shield":
        """A shield whose stand-ins occur in none of these texts."""
        taken = {ord(found) for text in texts if not text.isascii() for found in ANY_STAND_IN.findall(text)}
        num_needed = len(self.first_characters) + 1
        start = FIRST_STAND_IN
        for code in sorted(taken):
            if code - start >= num_needed:
                break
            start = code + 1
        assert start + num_needed <= LAST_STAND_IN, "the texts hold every private-use character"
        return Shield(self, start)


@dataclass(frozen=True)
class Shield:
    """Stand-ins for the first characters of control tokens, one code point each from `start` on; then `splice_mark`."""

    control_tokens: ControlTokens
    start: int

    @cached_property
    def stand_ins(self) -> dict[str, str]:
        """The stand-in of each first character."""
        return {character: chr(self.start + i) for i, character in enumerate(self.control_tokens.first_characters)}

    @property
    def splice_mark(self) -> str:
        """One character that stands for a whole reply whose token ids are known."""
        return chr(self.start + len(self.control_tokens.first_characters))

    def is_free_in(self, texts: Iterable[str]) -> bool:
        """Whether none of its stand-ins occurs in these texts."""
        ours = {*self.stand_ins.values(), self.splice_mark}
        return all(text.isascii() or ours.isdisjoint(text) for text in texts)

    def cover(self, text: str) -> str:
        """Every character that could begin a control token, replaced."""
        # Not str.translate, which is many times slower, and whole chats pass through here.
        for character, stand_in in self.stand_ins.items():
            text = text.replace(character, stand_in)
        return text

    def cover_tokens(self, text: str) -> str:
        """The same, but only inside whole control tokens: all else is left for the template to read."""
        return self.control_tokens.pattern.sub(lambda found: self.cover(found[0]), text)
