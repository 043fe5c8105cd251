"""Which rows of a step begin with the same blocks: compared by block id, never inferred from reference counts.

Replies to one prompt part at its end; chats of one system prompt part there; branches part again later. So what is
shared is a tree, and each of its edges is a run of blocks that some rows have in common:

    rows 0 to 7 share blocks 0 to 62, of these rows 0 to 2 also blocks 63 to 90.

An edge too short, or of too few rows, to be worth its own work is left to the runs that follow it, or to the rows.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..kernels.shared_run import SharedRun


@dataclass(frozen=True, slots=True)
class SharingRule:
    """When reading blocks once for several rows pays. `unit_blocks`: a run begins and ends at multiples of it."""

    min_rows: int
    min_blocks: int
    unit_blocks: int = 1

    def __post_init__(self) -> None:
        assert self.min_rows >= 2, "one row shares nothing"
        assert self.min_blocks >= 1, "a run has a block"


@dataclass(slots=True)
class BlockReads:
    """Of a block by a decoding sequence, since the start."""

    num_saved: int = 0  # because another sequence had the block read in the same step

    def count(self, runs: tuple[SharedRun, ...]) -> None:
        self.num_saved += sum((len(run.rows) - 1) * run.num_blocks for run in runs)


def find_shared_runs(
    block_tables: NDArray[np.int32],  # [S, max_blocks]
    num_full_blocks: NDArray[np.int64],  # [S], that each row may share: full ones, which it doesn't write
    rule: SharingRule,
) -> tuple[SharedRun, ...]:
    """The runs that pay, each before those that continue it. Looks at each block of a table about once."""
    runs: list[SharedRun] = []
    # (rows that agree on all blocks before `depth`, blocks before `start` being dealt with already)
    open_edges = [(np.arange(len(block_tables)), 0, 0)]
    while open_edges:
        rows, start, depth = open_edges.pop()
        rows = rows[num_full_blocks[rows] > depth]
        if len(rows) < rule.min_rows:
            continue
        for same in _by_block(rows, block_tables[rows, depth]):
            if len(same) < rule.min_rows:
                continue
            end = _first_difference(block_tables, same, depth + 1, int(num_full_blocks[same].min()))
            whole_end = end // rule.unit_blocks * rule.unit_blocks
            begin = start
            if whole_end - start >= rule.min_blocks:
                runs.append(SharedRun(start, whole_end, tuple(same.tolist())))
                begin = whole_end
            open_edges.append((same, begin, end))
    return tuple(runs)


def _by_block(rows: NDArray[np.int64], block_ids: NDArray[np.int32]) -> list[NDArray[np.int64]]:
    """The rows in groups of one block id each, the groups in the order of their first rows."""
    if (block_ids == block_ids[0]).all():
        return [rows]
    groups: dict[int, list[int]] = {}
    for row, block_id in zip(rows.tolist(), block_ids.tolist(), strict=True):
        groups.setdefault(block_id, []).append(row)
    return [np.array(group) for group in groups.values()]


def _first_difference(block_tables: NDArray[np.int32], rows: NDArray[np.int64], first: int, limit: int) -> int:
    """The first place from `first` on where the rows differ, at most `limit`."""
    step = 64  # places looked at together: a fork that parts early costs no look at long tables
    while first < limit:
        last = min(first + step, limit)
        here = block_tables[rows, first:last]
        differs = (here != here[0]).any(axis=0)
        if differs.any():
            return first + int(differs.argmax())
        first, step = last, 4 * step
    return limit
