"""The hash chain: what names a prefix."""

import itertools

import pytest
import xxhash

from paged_chat.engine.cache.block import Root
from paged_chat.engine.cache.block_hash import BlockHasher, frame


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (("ab", "c"), ("a", "bc")),
        (("ab", "c"), ("abc",)),
        (("ab", "c"), ("ab", "c", "")),
        (("", "a"), ("a", "")),
        ((), ("",)),
        (("a\x00", "b"), ("a", "\x00b")),
        (("é",), ("e\u0301",)),
    ],
)
def test_fields_that_concatenate_alike_stay_apart(first, second):
    assert frame(first) != frame(second)


def test_no_two_ways_to_cut_a_text_into_fields_are_framed_alike():
    text = "aaaaaa"
    cuts = [cut for count in range(6) for cut in itertools.combinations(range(1, 6), count)]
    ways = [[text[a:b] for a, b in itertools.pairwise((0, *cut, 6))] for cut in cuts]
    assert len({frame(way) for way in ways}) == len(ways) == 32


def test_each_field_stands_behind_its_length_in_8_bytes():
    assert frame(["é", b"abc"]) == b"\2\0\0\0\0\0\0\0\xc3\xa9\3\0\0\0\0\0\0\0abc"


def test_half_a_surrogate_pair_is_a_field_like_any_other():
    assert frame(["\ud83d"]) == b"\3\0\0\0\0\0\0\0\xed\xa0\xbd"


def test_a_field_may_be_bytes():
    assert frame((b"ab", "c")) == frame(("ab", b"c"))


def test_a_blocks_hash_is_xxh3_128_of_its_parents_hash_and_its_token_ids():
    hasher = BlockHasher()
    root = hasher.root(("weights", "float32", "adapter", "salt"))
    ids = b"".join(token_id.to_bytes(4, "little") for token_id in (7, 0, 49151, 2**32 - 1))
    assert root.block_hash == xxhash.xxh3_128_digest(frame(("weights", "float32", "adapter", "salt")))
    assert hasher.block(root.block_hash, (7, 0, 49151, 2**32 - 1)) == xxhash.xxh3_128_digest(root.block_hash + ids)


def test_equal_tokens_after_another_parent_have_another_hash():
    hasher = BlockHasher()
    first, second = hasher.root(("a",)), hasher.root(("b",))
    tokens = list(range(16))
    assert hasher.block(first.block_hash, tokens) != hasher.block(second.block_hash, tokens)
    chained = hasher.block(hasher.block(first.block_hash, tokens), tokens)
    assert chained != hasher.block(first.block_hash, tokens)


def test_a_list_and_a_tuple_of_the_same_tokens_have_the_same_hash():
    hasher = BlockHasher()
    assert hasher.block(b"", [1, 2, 3]) == hasher.block(b"", (1, 2, 3))


@pytest.mark.parametrize("bits", [8, 64, 128])
def test_a_hash_has_as_many_bits_as_asked_for(bits):
    whole, cut = BlockHasher(), BlockHasher(bits)
    root = whole.root(("weights",)).block_hash
    assert cut.root(("weights",)).block_hash == root[: bits // 8]
    assert cut.block(root, [1, 2]) == whole.block(root, [1, 2])[: bits // 8]
    assert len(whole.block(root, [1, 2])) == 16


@pytest.mark.parametrize("bits", [0, 12, 136])
def test_a_hash_is_cut_to_whole_bytes_that_it_has(bits):
    with pytest.raises(AssertionError, match="whole bytes"):
        BlockHasher(bits)


def test_a_hash_cut_to_8_bits_is_one_byte_and_collides():
    hasher = BlockHasher(bits=8)
    root = hasher.root(("weights",))
    hashes = [hasher.block(root.block_hash, [token]) for token in range(1000)]
    assert {len(block_hash) for block_hash in hashes} == {1}
    assert len(set(hashes)) <= 256


def test_roots_are_equal_only_if_their_fields_are_whatever_their_hashes_say():
    hasher = BlockHasher(bits=8)
    roots = [hasher.root((f"salt {number}",)) for number in range(300)]
    colliding = [(a, b) for a, b in itertools.combinations(roots, 2) if a.block_hash == b.block_hash]
    assert colliding
    assert all(first != second for first, second in colliding)
    assert hasher.root(("salt 1",)) == roots[1]
    assert Root(b"fields", b"one") == Root(b"fields", b"other")
