"""How a reply differs from another one, word by word."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Literal

SpanKind = Literal["same", "only here", "only there"]

# A word with the white space behind it, so that a line broken elsewhere is no difference. Punctuation counts as words,
# and so does each character of scripts that put no spaces between words.
_WORD = re.compile(r"(?:[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]|[^\W\u3040-\u9fff\uf900-\ufaff]+|\W)\s*")
_LEADING_SPACE = re.compile(r"\s*")


@dataclass(frozen=True, slots=True)
class Span:
    """A run of words: in both texts, only in the one that is looked at, or only in the one it is compared with.

    Always: the spans that aren't "only there", joined, are the text that is looked at.
    """

    kind: SpanKind
    text: str


def word_diff(reference: str, text: str) -> tuple[Span, ...]:
    """The text in spans, with what only the reference has where it is missing. Time grows with the product of lengths.

    Where words were exchanged, what is only there stands first.
    """
    there, here = _words(reference), _words(text)
    matcher = SequenceMatcher(None, [word.rstrip() for word in there], [word.rstrip() for word in here], autojunk=False)
    return tuple(_spans(matcher, there, here))


def _spans(matcher: SequenceMatcher[str], there: list[str], here: list[str]) -> Iterator[Span]:
    for tag, there_start, there_end, here_start, here_end in matcher.get_opcodes():
        if tag == "equal":
            yield Span("same", "".join(here[here_start:here_end]))
            continue
        if there_end > there_start:
            yield Span("only there", "".join(there[there_start:there_end]))
        if here_end > here_start:
            yield Span("only here", "".join(here[here_start:here_end]))


def _words(text: str) -> list[str]:
    start = _LEADING_SPACE.match(text)
    leading = start[0] if start else ""
    words = _WORD.findall(text, len(leading))
    return [leading, *words] if leading else words
