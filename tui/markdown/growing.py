"""Markdown that grows: what comes costs what its last blocks cost, however long the text is."""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content

from paged_chat.app.line_offset import offset_of_line

from .blocks import Block, parse
from .lines import BLANK, Typesetter

NUM_OPEN = 2  # blocks that may still change
MAX_HIGHLIGHTED_GROWING = 4_000  # characters of them, which are set anew with each token


class GrowingMarkdown:
    """The lines of a text, at one width at a time.

    Always: the blocks before `_offset` are final, and the first `_num_final` lines are theirs. Only the last two blocks
    can still change: what begins on the last line may turn out to belong to the block before ("2" to a list, "***" to
    a paragraph), and Markdown never reaches back further, except with the link addresses that some write at the end of
    a text: the whole text is set once more when the reply has ended.
    """

    def __init__(self) -> None:
        self._text = ""
        self._width = 0
        self._offset = 0
        self._lines: list[Content] = []
        self._num_final = 0
        self._num_final_codes = 0

    def lines(self, text: str, width: int) -> Sequence[Content]:
        """The lines of `text`, which is what was given before with something behind it, or any other."""
        if width != self._width or not text.startswith(self._text):
            self._forget()
        self._text, self._width = text, width
        placed = parse(text[self._offset :])
        del self._lines[self._num_final :]
        if len(placed) > NUM_OPEN:
            self._set([block.block for block in placed[:-NUM_OPEN]], highlights=True, is_final=True)
            self._offset = offset_of_line(text, placed[-NUM_OPEN].line, self._offset)
        if placed:
            is_short = len(text) - self._offset <= MAX_HIGHLIGHTED_GROWING
            self._set([block.block for block in placed[-NUM_OPEN:]], highlights=is_short, is_final=False)
        return self._lines

    def _set(self, blocks: Sequence[Block], *, highlights: bool, is_final: bool) -> None:
        typesetter = Typesetter(self._width, num_codes_before=self._num_final_codes, highlights=highlights)
        if self._lines:
            self._lines.append(BLANK)
        self._lines += typesetter.blocks(blocks)
        if is_final:
            self._num_final = len(self._lines)
            self._num_final_codes = typesetter.num_codes

    def _forget(self) -> None:
        self._offset = self._num_final = self._num_final_codes = 0
        self._lines = []
