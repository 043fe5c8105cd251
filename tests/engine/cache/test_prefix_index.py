"""The prefix index: how published blocks are found again."""

import pytest

from paged_chat.engine.cache.block import Block, Root
from paged_chat.engine.cache.prefix_index import PrefixIndex, common_length

ROOT = Root(b"root", b"root hash")
OTHER_ROOT = Root(b"other root", b"root hash")


@pytest.fixture
def index() -> PrefixIndex:
    return PrefixIndex()


@pytest.fixture
def blocks() -> list[Block]:
    return [Block(block_id) for block_id in range(8)]


def test_a_full_block_is_found_by_hash_tokens_and_parent_together(index, blocks):
    index.add(blocks[1], ROOT, [1, 2, 3, 4], b"h")
    assert index.find_full(ROOT, b"h", [1, 2, 3, 4]) is blocks[1]


def test_an_equal_hash_alone_proves_nothing(index, blocks):
    index.add(blocks[1], ROOT, [1, 2, 3, 4], b"h")
    index.add(blocks[2], blocks[1], [5, 6, 7, 8], b"i")
    assert index.find_full(ROOT, b"h", [1, 2, 3, 9]) is None  # other tokens
    assert index.find_full(OTHER_ROOT, b"h", [1, 2, 3, 4]) is None  # another root, though its hash is the same
    assert index.find_full(ROOT, b"i", [5, 6, 7, 8]) is None  # another parent
    assert index.find_full(blocks[1], b"i", [5, 6, 7, 8]) is blocks[2]
    assert index.find_full(ROOT, b"x", [1, 2, 3, 4]) is None


def test_the_child_with_most_leading_tokens_in_common_is_found(index, blocks):
    index.add(blocks[1], ROOT, [1, 2, 3, 4], b"h")
    index.add(blocks[2], ROOT, [1, 2, 9, 9], b"i")
    index.add(blocks[3], ROOT, [1, 2, 9], None)
    index.add(blocks[4], ROOT, [7, 2, 3, 4], b"j")
    assert index.find_longest(ROOT, [1, 2, 3, 4]) == (blocks[1], 4)
    assert index.find_longest(ROOT, [1, 2, 9, 9]) == (blocks[2], 4)
    assert index.find_longest(ROOT, [7]) == (blocks[4], 1)
    assert index.find_longest(ROOT, [8, 1, 2, 3]) == (None, 0)
    assert index.find_longest(ROOT, []) == (None, 0)
    assert index.find_longest(OTHER_ROOT, [1, 2, 3, 4]) == (None, 0)


def test_a_partial_block_is_found_as_far_as_it_goes(index, blocks):
    index.add(blocks[1], ROOT, [1, 2, 3], None)
    assert index.find_longest(ROOT, [1, 2, 3, 4]) == (blocks[1], 3)
    assert index.find_longest(ROOT, [1, 2, 8]) == (blocks[1], 2)
    assert index.find_full(ROOT, b"", [1, 2, 3]) is None


def test_partial_prefixes_are_those_that_hold_nothing_else(index, blocks):
    index.add(blocks[1], ROOT, [1, 2], None)
    index.add(blocks[2], ROOT, [1, 2, 3], None)
    index.add(blocks[3], ROOT, [1, 9], None)
    index.add(blocks[4], ROOT, [1, 2, 3, 4], b"h")
    assert index.partial_prefixes(ROOT, [1, 2, 3, 5]) == [blocks[1], blocks[2]]
    assert index.partial_prefixes(ROOT, [1, 2, 3, 4]) == [blocks[1], blocks[2]]  # the full one isn't partial
    assert index.partial_prefixes(ROOT, [1, 2]) == [blocks[1]]
    assert index.partial_prefixes(OTHER_ROOT, [1, 2, 3]) == []


def test_a_removed_block_is_gone_from_hash_map_and_children(index, blocks):
    index.add(blocks[1], ROOT, [1, 2, 3, 4], b"h")
    index.add(blocks[2], blocks[1], [5, 6], None)
    assert index.any_child(blocks[1]) is blocks[2]
    index.remove(blocks[2])
    assert index.any_child(blocks[1]) is None
    index.remove(blocks[1])
    assert index.find_full(ROOT, b"h", [1, 2, 3, 4]) is None
    assert index.find_longest(ROOT, [1, 2]) == (None, 0)
    assert not blocks[1].is_published
    assert index.num_published == 0
    index.check_integrity(blocks)


def test_a_block_with_children_cannot_be_removed(index, blocks):
    index.add(blocks[1], ROOT, [1, 2, 3, 4], b"h")
    index.add(blocks[2], blocks[1], [5, 6], None)
    with pytest.raises(AssertionError, match="children"):
        index.remove(blocks[1])


def test_a_block_is_published_once_and_under_a_findable_parent(index, blocks):
    index.add(blocks[1], ROOT, [1, 2, 3, 4], b"h")
    with pytest.raises(AssertionError, match="twice"):
        index.add(blocks[1], ROOT, [1, 2, 3, 4], b"i")
    with pytest.raises(AssertionError, match="can't be found"):
        index.add(blocks[2], blocks[3], [1], None)
    with pytest.raises(AssertionError, match="one hash"):
        index.add(blocks[4], ROOT, [8, 8, 8, 8], b"h")


def test_integrity_names_a_hash_map_that_disagrees(index, blocks):
    index.add(blocks[1], ROOT, [1, 2, 3, 4], b"h")
    index.check_integrity(blocks)
    blocks[1].block_hash = b"changed behind its back"
    with pytest.raises(AssertionError, match="hash map"):
        index.check_integrity(blocks)


@pytest.mark.parametrize(
    ("first", "second", "length"),
    [([], [], 0), ([1], [], 0), ([1, 2, 3], [1, 2, 3], 3), ([1, 2, 3], [1, 2], 2), ([1, 2], [1, 3], 1), ([1], [2], 0)],
)
def test_common_length(first, second, length):
    assert common_length(first, second) == length
