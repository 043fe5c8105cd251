"""Which rows of a step begin with the same blocks: by id, in runs that are a tree."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from paged_chat.engine.shared_runs import SharingRule, find_shared_runs
from paged_chat.kernels.shared_run import SharedRun, own_first_blocks

ANY = SharingRule(min_rows=2, min_blocks=1)


def runs_of(*tables, rule=ANY, num_full=None):
    """Rows of block ids; all but each row's last block are full."""
    widest = max(len(table) for table in tables)
    padded = np.array([[*table, *[0] * (widest - len(table))] for table in tables], np.int32)
    full = [len(table) - 1 for table in tables] if num_full is None else num_full
    return find_shared_runs(padded, np.array(full, np.int64), rule)


def test_replies_to_one_prompt_share_its_full_blocks():
    assert runs_of([7, 3, 9, 11], [7, 3, 9, 12], [7, 3, 9, 13]) == (SharedRun(0, 3, (0, 1, 2)),)


def test_a_tail_that_is_shared_by_count_is_not_read_as_shared():
    """Right after a fork both hold block 9, and one of them is about to write into it."""
    assert runs_of([7, 3, 9], [7, 3, 9]) == (SharedRun(0, 2, (0, 1)),)


def test_chats_of_one_system_prompt_share_it_and_each_ones_replies_more():
    runs = runs_of([1, 2, 3, 4, 50], [1, 2, 6, 7, 8], [1, 2, 3, 4, 51], [1, 2, 6, 7, 9], [1, 2, 10, 11])
    assert runs[0] == SharedRun(0, 2, (0, 1, 2, 3, 4))
    assert set(runs[1:]) == {SharedRun(2, 4, (0, 2)), SharedRun(2, 4, (1, 3))}


def test_several_groups_stand_beside_rows_of_their_own():
    runs = runs_of([1, 2, 20], [5, 6, 21], [9, 22], [5, 6, 23], [1, 2, 24])
    assert set(runs) == {SharedRun(0, 2, (0, 4)), SharedRun(0, 2, (1, 3))}


def test_equal_blocks_behind_different_ones_are_no_common_beginning():
    assert runs_of([1, 5, 6, 7], [2, 5, 6, 8]) == ()


def test_a_short_run_is_left_to_those_that_continue_it():
    tables = [1, 2, 3, 4, 50], [1, 2, 3, 4, 51], [1, 6, 7]
    assert runs_of(*tables, rule=SharingRule(2, 3)) == (SharedRun(0, 4, (0, 1)),)
    assert runs_of(*tables, rule=SharingRule(3, 1)) == (SharedRun(0, 1, (0, 1, 2)),)
    assert runs_of(*tables, rule=SharingRule(2, 5)) == ()


def test_runs_in_whole_units_begin_and_end_at_their_multiples():
    first, second = [*range(1, 40), 100], [*range(1, 40), 101]
    assert runs_of(first, second, rule=SharingRule(2, 1, unit_blocks=16)) == (SharedRun(0, 32, (0, 1)),)


def test_nothing_is_shared_by_rows_without_a_full_block():
    assert runs_of([4], [4]) == ()
    assert runs_of([0, 0], [0, 0], num_full=[-1, -1]) == ()


@given(
    st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=12), min_size=1, max_size=8),
    st.integers(2, 4),
    st.integers(1, 4),
)
def test_runs_are_what_the_rows_have_in_common_without_a_gap(tables, min_rows, min_blocks):
    runs = runs_of(*tables, rule=SharingRule(min_rows, min_blocks))
    for run in runs:
        assert len(run.rows) >= min_rows
        assert run.num_blocks >= min_blocks
        beginnings = {tuple(tables[row][: run.end_block]) for row in run.rows}
        assert len(beginnings) == 1
        assert all(run.end_block < len(tables[row]) for row in run.rows)
    for row in range(len(tables)):
        stretches = [(run.first_block, run.end_block) for run in runs if row in run.rows]
        assert [first for first, _ in stretches] == [0, *(end for _, end in stretches)][: len(stretches)]
    # With the loosest rule every row shares all that another one begins with, too.
    loosest = own_first_blocks(runs_of(*tables), len(tables))
    for row, table in enumerate(tables):
        others = (other for i, other in enumerate(tables) if i != row)
        common = (common_blocks(table[:-1], other[:-1]) for other in others)
        assert loosest[row] == max(common, default=0)


def common_blocks(one, other):
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
