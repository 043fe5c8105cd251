"""What several sequences of a step have in common: a stretch of their block tables."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SharedRun:
    """Blocks [first_block, end_block) of the block tables of some rows, the same block ids in all of them.

    Of a step's runs: a row's runs follow each other from its first block on without a gap, so that what is left to it
    alone is one stretch too. The blocks are full, and nobody writes into them any more.
    """

    first_block: int  # places in the block tables
    end_block: int
    rows: tuple[int, ...]  # ascending, at least two

    @property
    def num_blocks(self) -> int:
        return self.end_block - self.first_block


def whole_units(runs: tuple[SharedRun, ...], unit_blocks: int) -> tuple[SharedRun, ...]:
    """The runs, of which each begins and ends at a multiple of so many blocks.

    What is cut off a run's end is left to the runs that continue it, or to the rows.
    """
    cut = (
        SharedRun(run.first_block // unit_blocks * unit_blocks, run.end_block // unit_blocks * unit_blocks, run.rows)
        for run in runs
    )
    return tuple(run for run in cut if run.num_blocks > 0)


def own_first_blocks(runs: tuple[SharedRun, ...], num_rows: int) -> list[int]:
    """For each row the place in its block table where what it shares ends."""
    firsts = [0] * num_rows
    for run in runs:
        for row in run.rows:
            firsts[row] = max(firsts[row], run.end_block)
    return firsts
