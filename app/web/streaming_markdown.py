"""The HTML of a reply while it grows, of which a page is sent only what has changed."""

from __future__ import annotations

from dataclasses import dataclass

from ..line_offset import offset_of_line
from ..thinking import split_thinking
from .markdown import blocks_of, fold_thinking


@dataclass(frozen=True, slots=True)
class BlockChange:
    """The first `num_kept` blocks stay; `new_blocks` take the place of all that followed them."""

    num_kept: int
    new_blocks: tuple[str, ...]


class StreamingMarkdown:
    """Renders a growing text; a step costs what its last block costs, however long the text is.

    Always: the blocks before `_offset` are final. Only the last block can still change, for Markdown never reaches back
    over the beginning of a block, except with the link addresses that some write at the end of a text: the whole text
    is rendered once more when the reply has ended.
    """

    def __init__(self) -> None:
        self._answer = ""
        self._final: list[str] = []
        self._offset = 0  # of `_answer`, where the last block begins
        self._shown: tuple[str, ...] = ()

    @property
    def blocks(self) -> tuple[str, ...]:
        """As they were given out last."""
        return self._shown

    def update(self, text: str) -> BlockChange:
        """What has changed since the last update; `text` is the whole reply so far."""
        thinking, answer = split_thinking(text)
        if not answer.startswith(self._answer):  # it was rewritten: the closing tag of what it thinks has come
            self._final, self._offset = [], 0
        self._answer = answer
        head = [] if thinking is None else [fold_thinking(thinking.text, is_open_ended=thinking.is_open_ended)]
        blocks = blocks_of(answer[self._offset :])
        shown = (*head, *self._final, *(block.html for block in blocks))
        if len(blocks) > 1:
            self._final += [block.html for block in blocks[:-1]]
            self._offset = offset_of_line(answer, blocks[-1].line, self._offset)
        num_kept = 0
        for old, new in zip(self._shown, shown, strict=False):
            if old != new:
                break
            num_kept += 1
        self._shown = shown
        return BlockChange(num_kept, shown[num_kept:])
