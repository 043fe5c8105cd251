"""The memory of evictions: what it knows, and what it says once it has forgotten."""

from collections import OrderedDict
from collections.abc import Sequence

import hypothesis.strategies as st
from hypothesis import given

from paged_chat.engine.cache.block import Block, Root
from paged_chat.engine.cache.block_hash import BlockHasher
from paged_chat.engine.cache.evicted_blocks import EvictedBlocks

HASHER = BlockHasher()
ROOT = HASHER.root(("weights", ""))
BLOCK_SIZE = 4


def full_block(token_ids: list[int], parent: Root | Block = ROOT) -> Block:
    parent_hash = parent.block_hash
    assert parent_hash is not None
    return Block(1, token_ids=tuple(token_ids), block_hash=HASHER.block(parent_hash, token_ids), parent=parent)


def partial_block(token_ids: list[int], parent: Root | Block = ROOT) -> Block:
    return Block(2, token_ids=tuple(token_ids), parent=parent)


def knows(memory: EvictedBlocks, block: Block) -> bool:
    assert block.block_hash is not None
    return block.block_hash in memory


def num_tokens(memory: EvictedBlocks, token_ids: list[int]) -> int:
    return memory.num_tokens(ROOT.block_hash, token_ids, BLOCK_SIZE)


def test_a_chain_is_found_block_by_block_and_then_its_tail() -> None:
    memory = EvictedBlocks(HASHER, capacity=8)
    first = full_block([1, 2, 3, 4])
    second = full_block([5, 6, 7, 8], first)
    for block in (partial_block([9, 10], second), second, first):  # as the pool does: children before parents
        memory.add(block)
    assert num_tokens(memory, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]) == 10
    assert num_tokens(memory, [1, 2, 3, 4, 5, 6, 7, 8, 9, 11]) == 8  # the tail was there as a whole or not at all
    assert num_tokens(memory, [1, 2, 3, 4, 5, 6, 7, 8]) == 8
    assert num_tokens(memory, [1, 2, 3, 4, 5, 6, 7, 9]) == 4
    assert num_tokens(memory, [1, 2, 3, 5]) == 0
    assert num_tokens(memory, []) == 0


def test_a_tail_of_any_length_is_found_by_as_many_tokens_as_it_held() -> None:
    for length in (1, 2, 3):
        memory = EvictedBlocks(HASHER, capacity=8)
        memory.add(partial_block([5, 6, 7][:length]))
        assert num_tokens(memory, [5, 6, 7, 8]) == length
        assert num_tokens(memory, [5, 6, 7][:length]) == length
        assert num_tokens(memory, [5, 6, 7][: length - 1]) == 0


def test_at_most_a_blocks_tokens_are_hashed_behind_the_whole_blocks() -> None:
    class CountingHasher(BlockHasher):
        num_hashes = 0

        def block(self, parent_hash: bytes, token_ids: Sequence[int]) -> bytes:
            self.num_hashes += 1
            return super().block(parent_hash, token_ids)

    hasher = CountingHasher()
    memory = EvictedBlocks(hasher, capacity=8)
    assert memory.num_tokens(ROOT.block_hash, range(100), BLOCK_SIZE) == 0
    assert hasher.num_hashes == 1  # where nothing was evicted, the first block's alone
    memory.add(full_block([0, 1, 2, 3]))
    hasher.num_hashes = 0
    assert memory.num_tokens(ROOT.block_hash, range(100), BLOCK_SIZE) == 4
    assert hasher.num_hashes == 2 + 3  # two blocks, and each length that a partial second one could have


def test_a_block_that_is_published_again_is_not_evicted_any_more() -> None:
    memory = EvictedBlocks(HASHER, capacity=8)
    block, tail = full_block([1, 2, 3, 4]), partial_block([1, 2])
    memory.add(block)
    memory.add(tail)
    memory.discard(block)
    assert num_tokens(memory, [1, 2, 3, 4]) == 2
    memory.discard(tail)
    assert (num_tokens(memory, [1, 2, 3, 4]), len(memory), memory.num_forgotten) == (0, 0, 0)


def test_the_oldest_is_forgotten_and_that_is_counted() -> None:
    memory = EvictedBlocks(HASHER, capacity=2)
    one, two, three = (full_block([number] * 4) for number in (1, 2, 3))
    memory.add(one)
    memory.add(two)
    memory.add(one)  # evicted again: the newest
    assert memory.num_forgotten == 0
    memory.add(three)
    assert [knows(memory, block) for block in (one, two, three)] == [True, False, True]
    assert (len(memory), memory.num_forgotten) == (2, 1)


@given(
    capacity=st.integers(0, 4),
    history=st.lists(st.tuples(st.booleans(), st.integers(0, 6)), max_size=40),
)
def test_it_is_an_ordered_dictionary_of_bounded_size(capacity: int, history: list[tuple[bool, int]]) -> None:
    memory = EvictedBlocks(HASHER, capacity)
    model: OrderedDict[int, None] = OrderedDict()
    num_forgotten = 0
    for is_evicted, number in history:
        model.pop(number, None)
        if is_evicted:
            memory.add(full_block([number] * 4))
            model[number] = None
            if len(model) > capacity:
                model.popitem(last=False)
                num_forgotten += 1
        else:
            memory.discard(full_block([number] * 4))
        assert [knows(memory, full_block([n] * 4)) for n in range(7)] == [n in model for n in range(7)]
        assert (len(memory), memory.num_forgotten) == (len(model), num_forgotten)
