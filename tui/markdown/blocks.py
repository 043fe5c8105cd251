"""Markdown taken apart: paragraphs, headings, code, lists, quotes, tables.

Nothing of a message becomes markup of its own: HTML in it is shown, not obeyed, and links are addresses to read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Literal, TypeAlias

from textual.content import Content, Span

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

# Classes of the widget that draws them; bold, italic and struck out need none.
CODE_INLINE = ".reply--code-inline"
ADDRESS = ".reply--address"

Align: TypeAlias = Literal["left", "center", "right"]


@dataclass(frozen=True, slots=True)
class Paragraph:
    """Text; a line feed in it is a break that was asked for."""

    content: Content
    is_tight: bool = False  # of a list whose items stand close together


@dataclass(frozen=True, slots=True)
class Heading:
    """level: 1 to 6."""

    level: int
    content: Content


@dataclass(frozen=True, slots=True)
class Code:
    """language: as it is written behind the fence; "" where nothing is."""

    language: str
    code: str


@dataclass(frozen=True, slots=True)
class Quote:
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class Item:
    """marker: "•", or the number with a point."""

    marker: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class ItemList:
    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """Every row has as many cells as the header."""

    header: tuple[Content, ...]
    rows: tuple[tuple[Content, ...], ...]
    aligns: tuple[Align, ...]


@dataclass(frozen=True, slots=True)
class Rule:
    """A line across."""


Block: TypeAlias = Paragraph | Heading | Code | Quote | ItemList | Table | Rule


@dataclass(frozen=True, slots=True)
class PlacedBlock:
    """A block at the top level, and the line of the text where it begins."""

    block: Block
    line: int


def parse(text: str) -> list[PlacedBlock]:
    """The blocks of a text; whatever is broken in it becomes a paragraph."""
    reader = _Reader(_markdown().parse(text))
    return list(reader.placed_blocks())


def code_blocks(text: str) -> list[str]:
    """The code of each block of it, those in lists and quotes too, from top to bottom."""
    return [token.content.rstrip("\n") for token in _markdown().parse(text) if token.type in ("fence", "code_block")]


@cache
def _markdown() -> MarkdownIt:
    from markdown_it import MarkdownIt  # only now: the first frame shows no Markdown

    return MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])


class _Reader:
    """Walks over the parser's tokens, in which what opens is closed again."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self._tokens = tokens
        self._place = 0

    def placed_blocks(self) -> Iterator[PlacedBlock]:
        while self._place < len(self._tokens):
            token = self._tokens[self._place]
            for block in self._block():
                yield PlacedBlock(block, token.map[0] if token.map else 0)

    def _take(self) -> Token:
        token = self._tokens[self._place]
        self._place += 1
        return token

    def _block(self) -> Iterator[Block]:
        token = self._take()
        match token.type:
            case "paragraph_open":
                yield Paragraph(self._inline_until("paragraph_close"), is_tight=token.hidden)
            case "heading_open":
                yield Heading(int(token.tag[1:]), self._inline_until("heading_close"))
            case "fence" | "code_block":
                words = token.info.split()
                yield Code(words[0] if words else "", token.content.rstrip("\n"))
            case "blockquote_open":
                yield Quote(self._blocks_until("blockquote_close"))
            case "bullet_list_open":
                yield ItemList(tuple(self._items("bullet_list_close", lambda _: "•")))
            case "ordered_list_open":
                yield ItemList(tuple(self._items("ordered_list_close", lambda item: f"{item.info}.")))
            case "table_open":
                yield self._table()
            case "hr":
                yield Rule()
            case _:
                raise AssertionError(f"{token.type} is no block of the rules that are enabled")

    def _blocks_until(self, closing: str) -> tuple[Block, ...]:
        blocks: list[Block] = []
        while self._tokens[self._place].type != closing:
            blocks += self._block()
        self._take()
        return tuple(blocks)

    def _items(self, closing: str, marker_of: Callable[[Token], str]) -> Iterator[Item]:
        while (item := self._take()).type != closing:
            yield Item(marker_of(item), self._blocks_until("list_item_close"))

    def _table(self) -> Table:
        rows: list[list[Content]] = []
        aligns: list[Align] = []
        while (token := self._take()).type != "table_close":
            if token.type == "tr_open":
                rows.append([])
            elif token.type in ("th_open", "td_open"):
                if len(rows) == 1:
                    aligns.append(_align_of(token))
                rows[-1].append(self._inline_until(token.type.replace("open", "close")))
        header, *others = rows
        return Table(tuple(header), tuple(tuple(row) for row in others), tuple(aligns))

    def _inline_until(self, closing: str) -> Content:
        content = Content()
        while (token := self._take()).type != closing:
            content = _inline(token.children or ())
        return content


def _align_of(cell: Token) -> Align:
    style = str(cell.attrs.get("style", ""))
    return "center" if "center" in style else "right" if "right" in style else "left"


_STYLES = {"strong_open": "bold", "em_open": "italic", "s_open": "strike"}


def _inline(tokens: Sequence[Token]) -> Content:
    """The text of a paragraph with its styles; an address stands behind the words of its link."""
    text = ""
    spans: list[Span] = []
    opened: list[tuple[int, str]] = []  # where, and the style or the address
    for token in tokens:
        if token.type in _STYLES:
            opened.append((len(text), _STYLES[token.type]))
        elif token.type == "link_open":
            opened.append((len(text), str(token.attrs.get("href", ""))))
        elif token.type == "link_close":
            start, address = opened.pop()
            spans.append(Span(start, len(text), "underline"))
            if address not in (text[start:], f"mailto:{text[start:]}"):
                spans.append(Span(len(text), len(text) + len(address) + 3, ADDRESS))
                text += f" ({address})"
        elif token.nesting == -1:
            start, style = opened.pop()
            spans.append(Span(start, len(text), style))
        elif token.type == "code_inline":
            spans.append(Span(len(text), len(text) + len(token.content), CODE_INLINE))
            text += token.content
        elif token.type == "image":
            words = f"{token.content or 'picture'} ({token.attrs.get('src', '')})"
            spans.append(Span(len(text), len(text) + len(words), ADDRESS))
            text += words
        else:
            # A line that a model ends stays one: of a poem, an address.
            text += "\n" if token.type in ("softbreak", "hardbreak") else token.content
    return Content(text, spans, strip_control_codes=False)
