"""Forks and copy-on-write: who shares a block, who copies it, who writes in place."""

from cache_driver import CacheDriver, table
from paged_chat.engine.cache.prefix_probe import PrefixProbe

PROMPT = list(range(1000, 1200))

# Fork and copy-on-write


def test_a_fork_shares_every_block_the_partial_tail_too(cache):
    parent = cache.start(PROMPT[:20])
    child = cache.fork(parent)
    assert table(child) == table(parent) == [1, 2]
    assert [block.ref_count for block in parent.block_table] == [2, 2]
    assert cache.counts() == {"empty": 9, "cached": 0, "referenced": 2}


def test_each_writer_that_parts_copies_the_tail_and_the_last_owner_writes_in_place(cache):
    first = cache.start(PROMPT[:20])
    second, third = cache.fork(first), cache.fork(first)
    copies = []
    for token_id, sequence in enumerate((first, second, third)):
        sequence.token_ids.append(token_id)
        copies.append(cache.compute(sequence))
    assert copies == [((2, 3),), ((2, 4),), ()]
    assert [table(s) for s in (first, second, third)] == [[1, 3], [1, 4], [1, 2]]
    assert cache.manager.counters.copies == 2
    assert [block.ref_count for block in cache.manager.pool.blocks[1:5]] == [3, 1, 1, 1]


def test_three_that_part_in_one_step_copy_twice(cache):
    first = cache.start(PROMPT[:20])
    family = [first, cache.fork(first), cache.fork(first)]
    for token_id, sequence in enumerate(family):
        sequence.token_ids.append(token_id)
        assert cache.grow(sequence)
    assert cache.execute() == ((2, 3), (2, 4))
    assert [table(s) for s in family] == [[1, 3], [1, 4], [1, 2]]


def test_after_the_copy_each_writes_its_own_block(cache):
    parent = cache.start(PROMPT[:20])
    child = cache.fork(parent)
    cache.decode(parent, range(30))
    cache.decode(child, range(100, 130))
    assert cache.manager.counters.copies == 1
    assert cache.manager.pool.num_shared == 1


def test_a_fork_at_a_blocks_end_needs_no_copy(cache):
    parent = cache.start(PROMPT[:32])
    child = cache.fork(parent)
    cache.decode(parent, [1])
    cache.decode(child, [2])
    assert (table(parent), table(child)) == ([1, 2, 3], [1, 2, 4])
    assert cache.manager.counters.copies == 0


def test_the_one_left_alone_writes_in_place(cache):
    parent = cache.start(PROMPT[:20])
    child = cache.fork(parent)
    cache.finish(parent)
    cache.decode(child, [5])
    assert table(child) == [1, 2]
    assert cache.manager.counters.copies == 0


def test_a_copy_made_for_reuse_leaves_its_source_as_it_was(cache):
    cache.ask(PROMPT[:28])
    for number in range(3):
        cache.ask(PROMPT[:20] + [number] * 10)
    assert cache.probe(PROMPT[:28]).num_cached_tokens == 27
    assert cache.manager.counters.copies == 3


def test_a_shared_tail_is_not_kept_by_the_first_to_leave(cache):
    parent = cache.start(PROMPT[:20])
    child = cache.fork(parent)
    cache.finish(child)
    assert cache.probe(PROMPT[:20]).num_cached_tokens == 16
    cache.decode(parent, [1, 2])
    cache.finish(parent)
    assert cache.probe([*PROMPT[:20], 1, 2, 3]).num_cached_tokens == 22


def test_the_last_to_leave_keeps_the_tail_that_it_has_shared(cache):
    parent = cache.start(PROMPT[:20])
    child = cache.fork(parent)
    cache.finish(parent)
    cache.finish(child)
    assert cache.probe(PROMPT[:20]) == PrefixProbe(19, 1, 19)


def test_a_copy_that_is_still_to_come_is_done_for_whoever_is_left(cache):
    cache.ask(PROMPT[:28])
    parent = cache.sequence([*PROMPT[:20], 1])
    assert cache.admit(parent)  # four tokens of block 2 are copied into block 3 by the next step
    child = cache.fork(parent)
    cache.finish(parent)
    assert table(child) == [1, 3]
    assert cache.compute(child) == ((2, 3),)


def test_one_that_forks_within_its_prompt_has_no_block_to_spare_for_the_copy():
    """It holds more blocks than its next tokens need, and they are its child's too."""
    cache = CacheDriver(num_blocks=4)
    parent = cache.sequence(PROMPT[:48])
    assert cache.admit(parent)
    cache.compute(parent, 20)
    child = cache.fork(parent)
    assert not cache.grow(child, 4)
    cache.finish(parent)
    assert cache.grow(child, 4)
    cache.execute()
    cache.check()
