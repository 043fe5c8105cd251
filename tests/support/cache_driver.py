"""Drives a BlockManager without a model: a dictionary stands for the pool's memory.

What a slot holds is a token and all tokens before it, for that is what a KV entry depends on. So whatever goes wrong
with blocks, copies or matches shows as a slot that holds another history than its sequence believes.
"""

import itertools
from collections.abc import Iterable, Mapping
from collections.abc import Sequence as ListOf
from typing import TypeVar

from paged_chat.engine.cache.block import Block, Root
from paged_chat.engine.cache.block_hash import BlockHasher
from paged_chat.engine.cache.block_manager import BlockManager
from paged_chat.engine.cache.prefix_probe import PrefixProbe
from paged_chat.engine.events import EventLog
from paged_chat.engine.request import SamplingParams
from paged_chat.engine.sequence import Sequence, SequenceStatus

Held = TypeVar("Held")
History = tuple[str, tuple[int, ...]]  # salt, and all tokens up to the slot's own
GARBAGE: History = ("what a step left that failed midway", ())


class SimulatedMemory:
    """What each slot of the pool holds."""

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self.slots: dict[int, History] = {}

    def slot(self, blocks: ListOf[Block], position: int) -> int:
        return blocks[position // self.block_size].block_id * self.block_size + position % self.block_size

    def write(self, sequence: Sequence, salt: str, start: int, end: int, guesses: ListOf[int] = ()) -> None:
        """The tokens from start to end, and guesses behind the sequence's last one."""
        tokens = (*sequence.token_ids, *guesses)
        for position in [*range(start, end), *range(len(sequence.token_ids), len(tokens))]:
            self.slots[self.slot(sequence.block_table, position)] = (salt, tokens[: position + 1])

    def spoil(self, sequence: Sequence, start: int, end: int) -> None:
        for position in range(start, end):
            self.slots[self.slot(sequence.block_table, position)] = GARBAGE


def copy_slots(slots: dict[int, Held], copies: ListOf[tuple[int, int]], block_size: int) -> None:
    """Whole blocks, (source, destination); all sources are read before anything is written."""
    moved = {}
    for source, destination in copies:
        for offset in range(block_size):
            moved[destination * block_size + offset] = slots.get(source * block_size + offset)
    for slot, held in moved.items():
        if held is None:
            slots.pop(slot, None)
        else:
            slots[slot] = held


class WorstHasher(BlockHasher):
    """As bad as a hash can be: it sees neither the parent nor all tokens, so nearly everything collides."""

    def block(self, parent_hash: bytes, token_ids: ListOf[int]) -> bytes:
        return bytes([sum(token_ids) % 4])


class CacheDriver:
    """A manager, its simulated memory, and the sequences that hold blocks.

    A step is opened by `admit`, `grow` and `draft`, which say what it computes, and carried out by `execute`. After
    each call everything that a sequence believes computed lies in its slots, with exactly its own history.
    """

    def __init__(
        self,
        num_blocks: int,
        block_size: int = 16,
        *,
        prefix_caching: bool = True,
        watermark_blocks: int = 0,
        hasher: BlockHasher | None = None,
        events: EventLog | None = None,
        num_evicted_remembered: int | None = None,
    ) -> None:
        self.manager = BlockManager(
            num_blocks,
            block_size,
            prefix_caching=prefix_caching,
            watermark_blocks=watermark_blocks,
            hasher=hasher,
            events=events,
            num_evicted_remembered=num_evicted_remembered,
        )
        self.memory = SimulatedMemory(block_size)
        self.running: list[Sequence] = []
        self.waiting: list[Sequence] = []
        self.planned: dict[Sequence, int] = {}
        self.drafts: dict[Sequence, tuple[list[int], int]] = {}  # guesses, and how many of the first are right
        self._salts: dict[Sequence, str] = {}
        self._arrivals, self._samples = itertools.count(1), itertools.count(1)

    # Sequences

    def root(self, salt: str = "") -> Root:
        return self.manager.hasher.root(("weights", salt))

    def sequence(self, token_ids: Iterable[int], salt: str = "") -> Sequence:
        tokens = list(token_ids)
        arrival = next(self._arrivals)
        sequence = Sequence(
            request_id=f"r{arrival}",
            params=SamplingParams(),
            root=self.root(salt),
            token_ids=tokens,
            num_prompt_tokens=len(tokens),
            max_len=self.manager.max_tokens + 1,
            arrival=arrival,
        )
        self._salts[sequence] = salt
        return sequence

    def probe(self, token_ids: ListOf[int], salt: str = "") -> PrefixProbe:
        return self.manager.probe(list(token_ids), self.root(salt))

    # Within a step

    def admit(self, sequence: Sequence, *, alone: bool = True) -> bool:
        if not self.manager.admit(sequence, alone=alone):
            return False
        sequence.status = SequenceStatus.RUNNING
        if sequence in self.waiting:
            self.waiting.remove(sequence)
        self.running.append(sequence)
        return True

    def grow(self, sequence: Sequence, num_tokens: int | None = None) -> bool:
        """Plans the next tokens for this step; False where the pool has no block for them."""
        count = sequence.num_remaining_tokens if num_tokens is None else num_tokens
        if not self.manager.grow(sequence, count):
            return False
        self.planned[sequence] = count
        return True

    def draft(self, sequence: Sequence, guesses: ListOf[int], num_right: int) -> bool:
        """Adds guesses to a sequence that this step computes to its end; False where the pool has no block for them."""
        if not self.manager.grow(sequence, sequence.num_remaining_tokens + len(guesses)):
            return False
        self.drafts[sequence] = (list(guesses), num_right)
        return True

    def preempt(self, sequence: Sequence) -> None:
        self.planned.pop(sequence, None)
        self.drafts.pop(sequence, None)
        self.running.remove(sequence)
        self.manager.free(sequence)
        sequence.status = SequenceStatus.WAITING
        self.waiting.append(sequence)

    def execute(self) -> tuple[tuple[int, int], ...]:
        """Copies, writes and publishes what the step has planned; gives the copies it did."""
        copies = self.manager.take_copies()
        copy_slots(self.memory.slots, copies, self.memory.block_size)
        for sequence, count in self.planned.items():
            start = sequence.num_computed_tokens
            guesses, _ = self.drafts.get(sequence, ([], 0))
            self.memory.write(sequence, self._salts[sequence], start, start + count, guesses)
        for sequence, count in self.planned.items():
            sequence.num_computed_tokens += count
            self.manager.publish(sequence)
        for sequence, (guesses, num_right) in self.drafts.items():
            for token_id in guesses[:num_right]:
                sequence.token_ids.append(token_id)
                sequence.num_computed_tokens += 1
                self.manager.publish(sequence)
            self.manager.trim(sequence)
        self.planned.clear()
        self.drafts.clear()
        return copies

    def execute_badly(self) -> None:
        """A step that raises midway: what it should have written is unknown, and its sequences end."""
        copies = self.manager.take_copies()
        for _, destination in copies:
            for offset in range(self.memory.block_size):
                self.memory.slots[destination * self.memory.block_size + offset] = GARBAGE
        for sequence, count in self.planned.items():
            start = sequence.num_computed_tokens
            guesses, _ = self.drafts.get(sequence, ([], 0))
            self.memory.spoil(sequence, start, start + count + len(guesses))
        for sequence in self.planned:
            self.running.remove(sequence)
            self.manager.forget_tail(sequence)
            self.manager.free(sequence)
            sequence.status = SequenceStatus.FINISHED
        self.planned.clear()
        self.drafts.clear()

    # Between steps

    def fork(self, parent: Sequence) -> Sequence:
        """A reply that parts from another; several of one parent are numbered in order."""
        child = parent.fork(next(self._samples), SequenceStatus.RUNNING)
        self._salts[child] = self._salts[parent]
        self.manager.fork(parent, child)
        self.running.append(child)
        return child

    def finish(self, sequence: Sequence) -> list[int]:
        """Gives the blocks back; returns which they were."""
        block_ids = table(sequence)
        self.running.remove(sequence)
        self.manager.free(sequence)
        sequence.status = SequenceStatus.FINISHED
        return block_ids

    # Whole stories

    def start(self, token_ids: Iterable[int], salt: str = "") -> Sequence:
        """Admits a prompt and computes all of it."""
        sequence = self.sequence(token_ids, salt)
        assert self.admit(sequence), "the pool is too small for this story"
        self.compute(sequence)
        return sequence

    def compute(self, sequence: Sequence, num_tokens: int | None = None) -> tuple[tuple[int, int], ...]:
        """One step that computes this sequence alone; gives the copies it did."""
        assert self.grow(sequence, num_tokens), "the pool is too small for this story"
        return self.execute()

    def decode(self, sequence: Sequence, token_ids: Iterable[int]) -> None:
        """Appends and computes tokens one at a time, as a reply grows."""
        for token_id in token_ids:
            sequence.token_ids.append(token_id)
            self.compute(sequence)

    def ask(self, token_ids: Iterable[int], reply: ListOf[int] = (), salt: str = "") -> list[int]:
        """A whole request: prompt, reply (whose last token is sampled and never computed), end. Gives its blocks."""
        sequence = self.start(token_ids, salt)
        self.decode(sequence, reply[:-1])
        sequence.token_ids.extend(reply[-1:])
        return self.finish(sequence)

    # What must hold

    def counts(self) -> dict[str, int]:
        pool = self.manager.pool
        return {"empty": pool.num_empty, "cached": pool.num_cached, "referenced": pool.num_referenced}

    def available_ids(self) -> list[int]:
        """The free blocks in the order in which they are taken; nothing is left of the cache then."""
        pool = self.manager.pool
        return [pool.take().block_id for _ in range(pool.num_available)]

    def check(self) -> None:
        self.manager.check_integrity(self.running)
        pool = self.manager.pool
        assert pool.num_empty + pool.num_cached + pool.num_referenced == pool.num_blocks - 1
        assert pool.blocks[0].ref_count == 0
        for sequence in self.running:
            self._check_slots(sequence)
            most = self.manager.blocks_for(len(sequence.token_ids))
            assert sequence in self.drafts or len(sequence.block_table) <= most, "blocks for tokens that it hasn't"
        for block in pool.blocks:
            if block.is_published:
                self._check_published(block)
        for sequence in self.waiting:
            assert (sequence.block_table, sequence.num_computed_tokens) == ([], 0)

    def _check_slots(self, sequence: Sequence) -> None:
        salt, pending = self._salts[sequence], self._copies_to_come()
        for position in range(sequence.num_computed_tokens):
            slot = self.memory.slot(sequence.block_table, position)
            held = pending.get(slot, self.memory.slots.get(slot))
            assert held == (salt, tuple(sequence.token_ids[: position + 1])), (
                f"slot {slot} holds {held}, and {sequence.request_id} believes it holds its position {position}"
            )

    def _check_published(self, block: Block) -> None:
        """A published block holds its tokens behind exactly the tokens of its parents."""
        before = self.tokens_before(block)
        held = [self.memory.slots.get(block.block_id * self.memory.block_size + i) for i in range(len(block.token_ids))]
        expected = [(before + block.token_ids)[: len(before) + i + 1] for i in range(len(block.token_ids))]
        assert [history[1] if history else None for history in held] == expected

    def tokens_before(self, block: Block) -> tuple[int, ...]:
        tokens: tuple[int, ...] = ()
        parent = block.parent
        while isinstance(parent, Block):
            tokens = parent.token_ids + tokens
            parent = parent.parent
        return tokens

    def root_of(self, block: Block) -> Root:
        parent = block.parent
        while isinstance(parent, Block):
            parent = parent.parent
        assert parent is not None
        return parent

    def _copies_to_come(self) -> Mapping[int, History | None]:
        """What a pending copy will have put into each slot, by the time anyone reads it."""
        pending: dict[int, History | None] = {}
        for destination, source in self.manager._copies.items():
            for offset in range(self.memory.block_size):
                to, of = (block.block_id * self.memory.block_size + offset for block in (destination, source))
                pending[to] = self.memory.slots.get(of)
        return pending


def table(sequence: Sequence) -> list[int]:
    """The ids of the blocks that a sequence holds."""
    return [block.block_id for block in sequence.block_table]
