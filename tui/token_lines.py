"""A reply's tokens broken into lines of a terminal, each character of each token in exactly one place."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from rich.cells import cell_len, chop_cells

from paged_chat.app.token_view.reply_tokens import ReplyToken

TAB_COLUMNS = 4


@dataclass(frozen=True, slots=True)
class Part:
    """What stands in one line of a token: columns [column, column + width)."""

    index: int  # of the token
    text: str
    column: int

    @property
    def width(self) -> int:
        return cell_len(self.text)


Line = tuple[Part, ...]


def lines_of(tokens: Sequence[ReplyToken], num_columns: int) -> list[Line]:
    """Lines no wider than `num_columns`; a line feed ends one, else words are kept whole where they fit.

    Each token has a part at least, so that a cursor can stand on it.
    """
    lines: list[Line] = []
    line: list[Part] = []
    column = 0

    def end_line() -> None:
        nonlocal line, column
        lines.append(tuple(line))
        line, column = [], 0

    for word in _words(tokens):
        if column and column + sum(cell_len(text) for _, text in word) > num_columns:
            end_line()
        for index, text in word:
            for piece in _pieces(text, num_columns, num_columns - column):
                if column + cell_len(piece) > num_columns:
                    end_line()
                line.append(Part(index, piece, column))
                column += cell_len(piece)
        if word[-1][1].endswith("⏎"):
            end_line()
    if line or not lines:
        end_line()
    return lines


def _words(tokens: Iterable[ReplyToken]) -> Iterable[list[tuple[int, str]]]:
    """Tokens and pieces of tokens that stay together: up to the next that begins with a space, or a line's end."""
    number = 0
    numbered: list[tuple[int, tuple[int, str]]] = []
    for token in tokens:
        flowing = token.piece.flowing.replace("\t", " " * (TAB_COLUMNS - 1)) or " "
        for text in filter(None, flowing.split("\n")):
            if text.startswith(" "):
                number += 1
            numbered.append((number, (token.index, text)))
            if text.endswith("⏎"):
                number += 1
    for _, word in groupby(numbered, key=lambda pair: pair[0]):
        yield [part for _, part in word]


def _pieces(text: str, num_columns: int, num_left: int) -> list[str]:
    """A text in pieces of which each fits a line, the first one what is left of it if the whole doesn't fit a line."""
    if cell_len(text) <= num_columns:
        return [text]
    first, *_ = chop_cells(text, num_left) if num_left > 1 else [""]
    rest = text[len(first) :]
    return [piece for piece in [first, *chop_cells(rest, num_columns)] if piece]
