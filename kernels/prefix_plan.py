"""Who computes what of the blocks that rows share: runs cut into segments, and a part for each row of a segment."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from .shared_run import SharedRun, own_first_blocks


@dataclass(frozen=True, slots=True)
class PrefixPlan:
    """A row's parts stand next to each other, in the order of its context.

    Of the last two, place 0 is for layers whose window hides the beginning of a context: there nothing is shared.
    """

    segments: NDArray[np.int64]  # [segments, 4]: first block, end, first member, number of members
    members: NDArray[np.int64]  # [members, 2]: a row, and its part of this segment
    own_starts: NDArray[np.int64]  # [2, M] tokens of each row's context that its parts stand for
    part_starts: NDArray[np.int64]  # [2, M + 1]: how many parts the rows before have together

    @property
    def arrays(self) -> tuple[NDArray[np.int64], ...]:
        """As the compiled steps take them."""
        return self.segments, self.members, self.own_starts, self.part_starts


@lru_cache(maxsize=8)
def plan_prefixes(
    runs: tuple[SharedRun, ...], num_rows: int, block_size: int, most_members: int, segment_blocks: int
) -> PrefixPlan:
    """Segments of at most so many rows and blocks.

    Kept for the steps that follow, in which the same rows mostly share the same blocks.
    """
    cuts: list[tuple[int, int, tuple[int, ...]]] = []
    for run in runs:
        for first in range(0, len(run.rows), most_members):
            rows = run.rows[first : first + most_members]
            start = run.first_block
            while start < run.end_block:
                # Cut at multiples, so that nothing depends on where a run begins.
                end = min(run.end_block, (start // segment_blocks + 1) * segment_blocks)
                cuts.append((start, end, rows))
                start = end
    counts = np.zeros(num_rows, np.int64)
    for _, _, rows in cuts:
        counts[list(rows)] += 1
    part_starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    following = part_starts[:-1].copy()
    segments: list[tuple[int, int, int, int]] = []
    members: list[tuple[int, int]] = []
    for start, end, rows in cuts:  # a row's cuts come in the order of its context
        segments.append((start, end, len(members), len(rows)))
        for row in rows:
            members.append((row, int(following[row])))
            following[row] += 1
    own_starts = block_size * np.array(own_first_blocks(runs, num_rows), np.int64)
    return PrefixPlan(
        np.array(segments, np.int64).reshape(-1, 4),
        np.array(members, np.int64).reshape(-1, 2),
        np.stack([np.zeros_like(own_starts), own_starts]),
        np.stack([np.zeros_like(part_starts), part_starts]),
    )
