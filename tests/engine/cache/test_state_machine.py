"""Pool and manager against plain dictionaries, over thousands of random steps.

The driver's dictionary says what each slot of the pool really holds: a token and all tokens before it. Alphabets are so
small that prefixes collide all the time, and pools so small that blocks are evicted all the time.
"""

from collections.abc import Sequence as ListOf

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from cache_driver import CacheDriver, WorstHasher, table
from paged_chat.engine.cache.block import Block, Parent, Root
from paged_chat.engine.cache.block_hash import BlockHasher
from paged_chat.engine.cache.prefix_probe import MissKind, PrefixProbe
from paged_chat.engine.sequence import Sequence

SALTS = ("", "ann")
STEPS = settings(
    max_examples=200,
    stateful_step_count=60,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


class CacheMachine(RuleBasedStateMachine):
    """Requests come, grow, part, end, are preempted or fail, in any order that an engine allows."""

    hasher: BlockHasher = BlockHasher()
    has_good_hashes = True
    prefix_caching = True

    @initialize(
        num_blocks=st.integers(2, 14), block_size=st.sampled_from((1, 2, 3, 4)), watermark_blocks=st.integers(0, 1)
    )
    def build(self, num_blocks: int, block_size: int, watermark_blocks: int) -> None:
        self.cache = CacheDriver(
            num_blocks,
            block_size,
            prefix_caching=self.prefix_caching,
            watermark_blocks=watermark_blocks,
            hasher=self.hasher,
        )
        self.watermark_blocks = watermark_blocks
        self.histories: list[list[int]] = [[]]  # what was ever asked, for others to continue or to part from
        self.num_hits = self.num_misses = 0
        self.ever_published: set[tuple[Root, tuple[int, ...]]] = set()  # all tokens up to a block's last
        self._remember_what_is_published()

    def _remember_what_is_published(self) -> None:
        """Blocks come and go within a rule."""
        index = self.cache.manager.pool.index
        add = index.add

        def add_and_remember(block: Block, parent: Parent, token_ids: ListOf[int], block_hash: bytes | None) -> None:
            add(block, parent, token_ids, block_hash)
            tokens = self.cache.tokens_before(block) + block.token_ids
            self.ever_published.add((self.cache.root_of(block), tokens))

        index.add = add_and_remember  # type: ignore[method-assign]

    # What the rules choose from

    def _idle(self) -> list[Sequence]:
        """Running ones that this step doesn't compute yet."""
        return [sequence for sequence in self.cache.running if sequence not in self.cache.planned]

    def _computable(self) -> list[Sequence]:
        return [sequence for sequence in self._idle() if sequence.num_remaining_tokens]

    def _whole(self) -> list[Sequence]:
        return [sequence for sequence in self._idle() if not sequence.num_remaining_tokens]

    def _pick(self, data: st.DataObject, sequences: list[Sequence]) -> Sequence:
        return sequences[data.draw(st.integers(0, len(sequences) - 1), label="which")]

    # Rules

    @rule(
        data=st.data(),
        ending=st.lists(st.integers(0, 2), min_size=1, max_size=8),
        salt=st.sampled_from(SALTS),
        alone=st.booleans(),
    )
    def submit(self, data: st.DataObject, ending: list[int], salt: str, alone: bool) -> None:
        """A prompt that continues something asked before, or parts from it anywhere."""
        base = data.draw(st.sampled_from(self.histories), label="base")
        kept = base[: data.draw(st.integers(0, len(base)), label="kept")]
        sequence = self.cache.sequence((kept + ending)[: self.cache.manager.max_tokens], salt)
        self._admit(sequence, alone)

    def _admit(self, sequence: Sequence, alone: bool) -> None:
        cache, pool = self.cache, self.cache.manager.pool
        is_first = sequence.num_cached_tokens is None
        expected = self._longest_known(sequence)
        num_available, copies = pool.num_available, cache.manager.counters.copies
        num_shared_whole = expected // cache.manager.block_size
        self._check_probe(cache.manager.probe(sequence.token_ids, sequence.root), sequence, expected)
        if cache.admit(sequence, alone=alone):
            assert sequence.num_computed_tokens == expected
            assert len(table(sequence)) == cache.manager.blocks_for(len(sequence.token_ids))
            assert cache.manager.counters.copies == copies + (expected > num_shared_whole * cache.manager.block_size)
            if is_first:
                assert sequence.num_cached_tokens == expected
                self.num_hits += expected
                self.num_misses += len(sequence.token_ids) - expected
            cache.planned[sequence] = sequence.num_remaining_tokens  # all of it, unless the rule below cuts it
            self.histories = [*self.histories, list(sequence.token_ids)][-12:]
        else:
            assert pool.num_available == num_available
            reserve = 0 if alone else self.watermark_blocks
            num_held = self._num_held_by_others(sequence, num_shared_whole)
            assert cache.manager.blocks_for(len(sequence.token_ids)) - num_held + reserve > num_available
            if sequence not in cache.waiting and not is_first:
                cache.waiting.append(sequence)

    def _check_probe(self, probe: PrefixProbe, sequence: Sequence, expected: int) -> None:
        """What it finds, and whether what it misses was evicted: full blocks go no other way."""
        assert probe.num_cached_tokens == probe.first_missing_token == expected
        assert (probe.miss is None) == (expected == len(sequence.token_ids) - 1)
        if probe.miss is None or not self.prefix_caching:
            return
        start = probe.miss.block_index * self.cache.manager.block_size
        assert probe.miss.token_index == expected
        assert (probe.miss.num_evicted_tokens > 0) == (probe.miss.kind is MissKind.EVICTED)
        if not self.has_good_hashes:
            return
        full = tuple(sequence.token_ids[: start + self.cache.manager.block_size])
        if (sequence.root, full) in self.ever_published and len(full) == start + self.cache.manager.block_size:
            assert probe.miss.kind in (MissKind.EVICTED, MissKind.NOT_REMEMBERED)
        if probe.miss.kind is MissKind.EVICTED:
            end = expected + probe.miss.num_evicted_tokens
            assert (sequence.root, tuple(sequence.token_ids[:end])) in self.ever_published

    def _longest_known(self, sequence: Sequence) -> int:
        """The longest beginning, last token left out, that any published block continues; found without hash or index.

        Whole blocks count only where each is published itself, which a published block's parents are.
        """
        if not self.prefix_caching:
            return 0
        wanted = sequence.token_ids[:-1]
        longest = 0
        for block in self.cache.manager.pool.blocks:
            if block.is_published and self.cache.root_of(block) == sequence.root:
                known = self.cache.tokens_before(block) + block.token_ids
                common = 0
                while common < min(len(known), len(wanted)) and known[common] == wanted[common]:
                    common += 1
                longest = max(longest, common)
        return longest

    def _num_held_by_others(self, sequence: Sequence, num_blocks: int) -> int:
        """How many of the first whole blocks that it could share are held by somebody now."""
        prefixes = {tuple(sequence.token_ids[: (i + 1) * self.cache.manager.block_size]) for i in range(num_blocks)}
        return sum(
            block.ref_count > 0
            and block.is_published
            and self.cache.root_of(block) == sequence.root
            and self.cache.tokens_before(block) + block.token_ids in prefixes
            for block in self.cache.manager.pool.blocks
        )

    @precondition(lambda self: self.cache.planned.keys() - self.cache.drafts.keys())
    @rule(data=st.data())
    def cut_a_chunk(self, data: st.DataObject) -> None:
        """The budget leaves less of a prompt than it has."""
        sequence = self._pick(data, [planned for planned in self.cache.planned if planned not in self.cache.drafts])
        self.cache.planned[sequence] = data.draw(st.integers(1, self.cache.planned[sequence]), label="chunk")

    @precondition(lambda self: self._computable())
    @rule(data=st.data())
    def grow(self, data: st.DataObject) -> None:
        sequence = self._pick(data, self._computable())
        self._grow(sequence, data.draw(st.integers(1, sequence.num_remaining_tokens), label="chunk"))

    def _grow(self, sequence: Sequence, count: int) -> None:
        """As the scheduler does: whoever gets no block makes the newest give up its own."""
        while sequence in self.cache.running:
            before = (table(sequence), self.cache.counts())
            if self.cache.grow(sequence, count):
                return
            assert (table(sequence), self.cache.counts()) == before
            self.cache.preempt(max(self.cache.running, key=lambda other: other.order))

    def _draftable(self) -> list[Sequence]:
        """Those that this step computes to their end, without guesses so far."""
        return [
            sequence
            for sequence, count in self.cache.planned.items()
            if count == sequence.num_remaining_tokens and sequence not in self.cache.drafts
        ]

    @precondition(lambda self: self._draftable())
    @rule(data=st.data(), guesses=st.lists(st.integers(0, 2), min_size=1, max_size=9))
    def draft(self, data: st.DataObject, guesses: list[int]) -> None:
        """Tokens are guessed ahead; the first of them, or none, turn out right."""
        sequence = self._pick(data, self._draftable())
        guesses = guesses[: self.cache.manager.max_tokens - len(sequence.token_ids)]
        num_available = self.cache.manager.pool.num_available
        num_right = data.draw(st.integers(0, len(guesses)), label="right")
        if self.cache.draft(sequence, guesses, num_right):
            self.histories = [*self.histories, [*sequence.token_ids, *guesses]][-12:]
        else:
            assert self.cache.manager.pool.num_available == num_available

    @precondition(lambda self: self.cache.running)
    @rule()
    def compute_all(self) -> None:
        """A step that gets everyone to the end of its tokens."""
        for sequence in self._computable():
            if sequence in self.cache.running:
                self._grow(sequence, sequence.num_remaining_tokens)
        self.execute()

    @precondition(lambda self: self.cache.running)
    @rule(data=st.data())
    def preempt(self, data: st.DataObject) -> None:
        self.cache.preempt(self._pick(data, self.cache.running))

    @precondition(lambda self: self.cache.waiting)
    @rule(data=st.data(), alone=st.booleans())
    def admit_again(self, data: st.DataObject, alone: bool) -> None:
        self._admit(self._pick(data, self.cache.waiting), alone)

    @precondition(lambda self: self.cache.planned)
    @rule()
    def execute(self) -> None:
        self.cache.execute()
        assert self.cache.manager.take_copies() == ()

    @precondition(lambda self: self.cache.planned)
    @rule()
    def fail(self) -> None:
        self.cache.execute_badly()

    @precondition(lambda self: not self.cache.planned and self._whole())
    @rule(token_ids=st.lists(st.integers(0, 2), min_size=1, max_size=4))
    def append(self, token_ids: list[int]) -> None:
        """Each reply gets its next token."""
        for number, sequence in enumerate(self._whole()):
            self._append(sequence, token_ids[number % len(token_ids)])

    @precondition(lambda self: not self.cache.planned and self._whole())
    @rule(data=st.data(), token_ids=st.lists(st.integers(0, 2), min_size=2, max_size=4))
    def fork(self, data: st.DataObject, token_ids: list[int]) -> None:
        """Replies to one prompt, which part with their first token; two may begin alike."""
        parent = self._pick(data, self._whole())
        children = [self.cache.fork(parent) for _ in token_ids[1:]]
        assert all(table(child) == table(parent) for child in children)
        for sequence, token_id in zip([parent, *children], token_ids, strict=True):
            self._append(sequence, token_id)

    def _append(self, sequence: Sequence, token_id: int) -> None:
        if len(sequence.token_ids) < self.cache.manager.max_tokens:
            sequence.token_ids.append(token_id)
            self.histories = [*self.histories, list(sequence.token_ids)][-12:]

    @precondition(lambda self: not self.cache.planned and self.cache.running)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        self.cache.finish(self._pick(data, self.cache.running))

    # What must hold after every rule

    @invariant()
    def the_dictionary_agrees(self) -> None:
        if hasattr(self, "cache"):
            self.cache.check()
            counters = self.cache.manager.counters
            assert (counters.hits, counters.misses) == (self.num_hits, self.num_misses)

    def teardown(self) -> None:
        """Idle again: nobody holds anything."""
        if hasattr(self, "cache"):
            self.cache.execute()
            for sequence in list(self.cache.running):
                self.cache.finish(sequence)
            self.cache.check()
            assert self.cache.counts()["referenced"] == 0


class ShortHashMachine(CacheMachine):
    """Hashes of 8 bits."""

    hasher = BlockHasher(bits=8)
    has_good_hashes = False


class WorstHashMachine(CacheMachine):
    """Nearly all hashes are equal, those of equal tokens behind other parents always."""

    hasher = WorstHasher()
    has_good_hashes = False


class UncachedMachine(CacheMachine):
    prefix_caching = False


@pytest.mark.parametrize("machine", [CacheMachine, ShortHashMachine, WorstHashMachine])
def test_pool_and_manager_agree_with_plain_dictionaries(machine):
    run_state_machine_as_test(machine, settings=STEPS)


def test_pool_and_manager_agree_with_plain_dictionaries_without_the_cache():
    run_state_machine_as_test(UncachedMachine, settings=settings(STEPS, max_examples=50))
