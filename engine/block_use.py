"""What sharing saves: the blocks that several sequences hold together, and those that each would hold alone."""

from collections.abc import Iterable

from .cache.block import Block
from .request import BlockUse
from .sequence import Sequence


def held_together(sequences: Iterable[Sequence]) -> BlockUse:
    """By all of them at this moment."""
    tables = [sequence.block_table for sequence in sequences if sequence.block_table]
    return BlockUse(
        num_blocks=len({block.block_id for table in tables for block in table}),
        num_blocks_alone=sum(len(table) for table in tables),
        num_sequences=len(tables),
    )


class BlockCount:
    """Counts the blocks of replies side by side over their lives, each once, as one reply after the other ends."""

    def __init__(self) -> None:
        self._num_let_go = 0
        self._num_alone = 0
        self._num_sequences = 0
        self._kept: set[Block] = set()  # that somebody else still held

    def add(self, sequence: Sequence) -> None:
        """It is about to give its blocks back."""
        self._num_sequences += 1
        self._num_alone += len(sequence.block_table)
        for block in sequence.block_table:
            if block.ref_count > 1:
                self._kept.add(block)
            else:
                self._num_let_go += 1
                self._kept.discard(block)

    @property
    def use(self) -> BlockUse:
        """Of the replies that have ended."""
        return BlockUse(self._num_let_go + len(self._kept), self._num_alone, self._num_sequences)
