"""Blocks of Markdown as lines of one width."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import chain, zip_longest

from rich.cells import cell_len
from textual.content import Content, Span
from textual.style import Style

from .blocks import Align, Block, Code, Heading, ItemList, Paragraph, Quote, Rule, Table, parse

# Classes of the widget that draws the lines.
HEADING = ".reply--heading"
TITLE = ".reply--title"  # a heading of the first two levels
CODE = ".reply--code"
CODE_HEAD = ".reply--code-head"
FAINT = ".reply--faint"  # bullets, bars, rules

COPY_WORD = "copy"
COPY_ACTION = "copy_code"  # with the number of the block of code among those of the text
TAB_SIZE = 4
MAX_HIGHLIGHTED = 10_000  # characters; longer code would hold the screen up for longer than a person notices
MIN_WIDTH = 12  # of what is nested so deeply that there is no room left: it reaches over the edge, and is cut there
MIN_CELL_WIDTH = 3

BLANK = Content()


@lru_cache(maxsize=128)
def whole_lines(text: str, width: int) -> tuple[Content, ...]:
    """All lines of a finished text; kept, since a long chat is scrolled back and forth."""
    blocks = [placed.block for placed in parse(text)]
    return tuple(Typesetter(width).blocks(blocks))


class Typesetter:
    """Sets blocks in lines of `width` cells, at least MIN_WIDTH; no line is longer, and code is filled up to it."""

    def __init__(self, width: int, *, num_codes_before: int = 0, highlights: bool = True) -> None:
        """num_codes_before: blocks of code that were set before these."""
        self._width = max(MIN_WIDTH, width)
        self._num_codes = num_codes_before
        self._highlights = highlights

    @property
    def num_codes(self) -> int:
        """Blocks of code so far."""
        return self._num_codes

    def blocks(self, blocks: Sequence[Block]) -> list[Content]:
        """The lines of blocks, an empty one between two of them unless they are those of a tight list."""
        lines: list[Content] = []
        for i, block in enumerate(blocks):
            if i > 0 and not _stand_close(blocks[i - 1], block):
                lines.append(BLANK)
            lines += self._block(block)
        return lines

    def _block(self, block: Block) -> list[Content]:
        width = self._width
        match block:
            case Paragraph(content):
                return _wrap(content, width)
            case Heading(level, content):
                return _wrap(content.stylize_before(TITLE if level <= 2 else HEADING), width)
            case Code():
                return self._code(block)
            case Rule():
                return [Content.styled("─" * width, FAINT)]
            case Table():
                return _table(block, width)
            case Quote(inner):
                return [Content.styled("▌ ", FAINT) + line for line in self._within(inner, width - 2) or [BLANK]]
            case ItemList():
                return self._list(block)

    def _within(self, blocks: Sequence[Block], width: int) -> list[Content]:
        inner = Typesetter(width, num_codes_before=self._num_codes, highlights=self._highlights)
        lines = inner.blocks(blocks)
        self._num_codes = inner.num_codes
        return lines

    def _list(self, block: ItemList) -> list[Content]:
        indent = max(len(item.marker) for item in block.items) + 1
        lines: list[Content] = []
        for item in block.items:
            marker = Content.styled(f"{item.marker.rjust(indent - 1)} ", FAINT)
            inner = self._within(item.blocks, self._width - indent) or [BLANK]
            lines.append(marker + inner[0])
            lines += [Content(" " * indent) + line for line in inner[1:]]
        return lines

    def _code(self, block: Code) -> list[Content]:
        width = self._width
        head = f" {block.language[: max(0, width - len(COPY_WORD) - 3)] or 'code'}"
        copy_style = Style.from_meta({"@click": f"{COPY_ACTION}({self._num_codes})"})
        self._num_codes += 1
        gap = max(1, width - cell_len(head) - len(COPY_WORD) - 1)
        start = len(head) + gap
        spans = [
            Span(0, start + len(COPY_WORD) + 1, CODE_HEAD),
            Span(start, start + len(COPY_WORD), "underline"),
            Span(start, start + len(COPY_WORD), copy_style),
        ]
        lines = [Content(head + " " * gap + COPY_WORD + " ", spans)]
        code = block.code.expandtabs(TAB_SIZE)
        if self._highlights and block.language and len(code) <= MAX_HIGHLIGHTED:
            from textual.highlight import highlight  # a twentieth of the time to the first frame

            for line in highlight(code, language=block.language, tab_size=TAB_SIZE).split("\n", allow_blank=True):
                lines += [_filled(part, width) for part in line.fold(width - 2)]
        else:
            for text in code.split("\n"):
                is_short = len(text) <= width - 2 and text.isascii()
                parts = [text] if is_short else [part.plain for part in Content(text).fold(width - 2)]
                lines += [_filled_plain(part, width) for part in parts]
        return lines


def _filled(line: Content, width: int) -> Content:
    """A line of code with the ground of code under all of it."""
    return (Content(" ") + line).pad_right(max(0, width - 1 - line.cell_length)).stylize_before(CODE)


def _filled_plain(text: str, width: int) -> Content:
    """As `_filled`, at a tenth of the cost: code may have ten thousands of lines."""
    filled = f" {text}".ljust(width) if text.isascii() else f" {text}{' ' * (width - 1 - cell_len(text))}"
    return Content(filled, [Span(0, len(filled), CODE)], cell_length=width, strip_control_codes=False)


def _stand_close(above: Block, below: Block) -> bool:
    return isinstance(above, Paragraph) and above.is_tight and isinstance(below, (Paragraph, ItemList))


def _wrap(content: Content, width: int) -> list[Content]:
    return content.wrap(max(1, width)) or [BLANK]


# Tables


def _table(table: Table, width: int) -> list[Content]:
    rows = [table.header, *table.rows]
    wanted = [max(cell.cell_length for cell in column) for column in zip(*rows, strict=True)]
    room = width - 3 * (len(wanted) - 1)
    if room < MIN_CELL_WIDTH * len(wanted):
        return _list_of_cells(table, width)
    widths = _column_widths(wanted, room)
    lines = _table_row(tuple(cell.stylize("bold") for cell in table.header), widths, table.aligns)
    lines.append(Content.styled("─┼─".join("─" * column for column in widths), FAINT))
    lines += chain.from_iterable(_table_row(row, widths, table.aligns) for row in table.rows)
    return lines


def _list_of_cells(table: Table, width: int) -> list[Content]:
    """Where the columns don't fit beside each other: each cell on lines of its own, behind its header."""
    lines: list[Content] = []
    for row in table.rows:
        for header, cell in zip(table.header, row, strict=True):
            lines += _wrap(header.stylize("bold") + ": " + cell, width)
        lines.append(BLANK)
    return lines[:-1]


def _column_widths(wanted: Sequence[int], room: int) -> list[int]:
    """What each column wants; where there isn't room for all, the widest give way first."""
    widths = [max(1, column) for column in wanted]
    while sum(widths) > room and max(widths) > MIN_CELL_WIDTH:
        widths[widths.index(max(widths))] -= 1
    return widths


def _table_row(cells: Sequence[Content], widths: Sequence[int], aligns: Sequence[Align]) -> list[Content]:
    wrapped = [_wrap(cell, width) for cell, width in zip(cells, widths, strict=True)]
    bar = Content.styled(" │ ", FAINT)
    lines = []
    for parts in zip_longest(*wrapped, fillvalue=BLANK):
        aligned = [_aligned(*part) for part in zip(parts, widths, aligns, strict=True)]
        lines.append(bar.join(aligned))
    return lines


def _aligned(cell: Content, width: int, align: Align) -> Content:
    room = max(0, width - cell.cell_length)
    left = {"left": 0, "center": room // 2, "right": room}[align]
    return cell.pad(left, room - left)
