"""Gives sequences their blocks: what they can reuse, what they must compute, when they part.

The policy, in the order in which it applies to a sequence:

1. Admission matches and allocates at once, afresh on every attempt. Whole blocks are shared as they are. The longest
   common part of one more block is copied, so reuse counts in tokens. The last token is always left to compute: a full
   hit would leave no logits to sample from.
2. A block is published once its KV is written. If an equal one was published first, the sequence goes on with that one
   and gives its own back, so whoever holds a published block holds its whole chain.
3. A writer that isn't a block's only holder gets a copy; the last holder writes in place.
4. A sequence that ends gives its blocks back from tail to head; its partly filled last block stays findable.

Copies are collected and done by the next step before anything is written, all sources read first. So a source may be
freed, and even taken by others, between being named here and being read.
"""

from collections.abc import Sequence as Tokens
from dataclasses import dataclass, replace

from ..events import EventKind, EventLog
from ..sequence import Sequence
from .block import Block, Root
from .block_hash import BlockHasher
from .block_pool import BlockPool
from .evicted_blocks import EvictedBlocks
from .prefix_match import PrefixMatch, PrefixMatcher
from .prefix_probe import MissKind, PrefixProbe

# Evictions that are remembered, for each block of the pool: the chats of a pool that was filled so often again.
EVICTED_PER_BLOCK = 4
MAX_ROOTS_SEARCHED = 64


@dataclass(slots=True)
class CacheCounters:
    """Prompt tokens, counted once for each request at its first admission; what preemption recomputes is apart."""

    hits: int = 0
    misses: int = 0
    recomputed: int = 0
    copies: int = 0


class BlockManager:
    """See the module's text for the policy.

    Always: a sequence's block table covers at least its computed tokens;
            blocks [0, num_published_blocks) of it are published, each the parent of the next.
    """

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        *,
        prefix_caching: bool = True,
        watermark_blocks: int = 0,
        hasher: BlockHasher | None = None,
        events: EventLog | None = None,
        num_evicted_remembered: int | None = None,
    ) -> None:
        """num_evicted_remembered: of how many evicted blocks it is known that they were here; EVICTED_PER_BLOCK for
        each block of the pool if it is None.
        """
        self.events = events or EventLog(capacity=1)
        self.hasher = hasher or BlockHasher()
        if num_evicted_remembered is None:
            num_evicted_remembered = EVICTED_PER_BLOCK * num_blocks
        self.pool = BlockPool(num_blocks, self.events, evicted=EvictedBlocks(self.hasher, num_evicted_remembered))
        self.block_size = block_size
        self.counters = CacheCounters()
        self._matcher = PrefixMatcher(self.pool, self.hasher, block_size)
        self._prefix_caching = prefix_caching
        self._watermark_blocks = watermark_blocks
        self._copies: dict[Block, Block] = {}  # destination -> source, for the next step
        self._being_computed: dict[bytes, Sequence] = {}  # hash of a prompt's block -> who computes it now

    def blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size)

    @property
    def max_tokens(self) -> int:
        """The longest sequence that the pool can hold when it holds nothing else."""
        return (self.pool.num_blocks - 1) * self.block_size

    # Admission

    def probe(self, token_ids: Tokens[int], root: Root, *, across_roots: bool = False) -> PrefixProbe:
        """Looks only: counts no use, moves no block.

        across_roots: also tell how much the prompt would find under other salts, of which whoever asks must be allowed
        to know what they sent.
        """
        match = self._matcher.match(token_ids, root)
        probe = self._probe(token_ids, root, match)
        if not across_roots or probe.miss is None:
            return probe
        others = [other for other in self.pool.index.roots if other != root][-MAX_ROOTS_SEARCHED:]
        found = [self._matcher.match(token_ids, other).num_tokens(self.block_size) for other in others]
        return replace(probe, miss=replace(probe.miss, num_tokens_elsewhere=max(found, default=0)))

    def admit(self, sequence: Sequence, *, alone: bool) -> bool:
        """Matches the sequence's tokens and gives it blocks for all of them; False means not now, nothing changed.

        `alone` says that nothing else runs: then the watermark would only keep the pool idle.
        """
        assert not sequence.block_table, "admitted a sequence that holds blocks"
        match = self._match(sequence)
        num_new = self.blocks_for(len(sequence.token_ids)) - len(match.blocks)
        num_revived = sum(block.ref_count == 0 for block in match.blocks)
        reserve = 0 if alone else self._watermark_blocks
        if self.pool.num_available - num_revived - num_new < reserve:
            return False
        self.events.request_id = sequence.request_id
        if sequence.prefix is None:
            # Before it takes a block, which may be one that the prompt lacks.
            sequence.prefix = self._probe(sequence.token_ids, sequence.root, match)
        for block in match.blocks:
            self.pool.acquire(block)
        sequence.block_table = list(match.blocks)
        sequence.num_published_blocks = len(match.blocks)
        sequence.num_computed_tokens = match.num_tokens(self.block_size)
        if match.partial is not None:
            self.pool.touch(match.partial)
            sequence.block_table.append(self._take_copy(match.partial, match.num_partial_tokens))
            num_new -= 1
        sequence.block_table += [self.pool.take() for _ in range(num_new)]
        self._announce(sequence)
        self._count_admission(sequence)
        return True

    def computed_by_other(self, sequence: Sequence) -> bool:
        """Whether the first block that the sequence would compute is being computed by another one right now."""
        if not self._being_computed:
            return False
        match = self._match(sequence)
        hashes = self._hashes(sequence, len(sequence.token_ids) // self.block_size)
        return len(match.blocks) < len(hashes) and hashes[len(match.blocks)] in self._being_computed

    def _match(self, sequence: Sequence) -> PrefixMatch:
        return self._matcher.match(sequence.token_ids, sequence.root, sequence.block_hashes)

    def _probe(self, token_ids: Tokens[int], root: Root, match: PrefixMatch) -> PrefixProbe:
        num_cached = match.num_tokens(self.block_size)
        miss = self._matcher.miss(token_ids, root, match)
        if miss is not None and not self._prefix_caching:
            miss = replace(miss, kind=MissKind.CACHE_OFF)
        return PrefixProbe(num_cached, len(match.blocks), num_cached, miss)

    def _announce(self, sequence: Sequence) -> None:
        """Tells later requests which full blocks of this one are on their way."""
        if not self._prefix_caching:
            return
        num_full = len(sequence.token_ids) // self.block_size
        for block_hash in self._hashes(sequence, num_full)[sequence.num_published_blocks :]:
            self._being_computed.setdefault(block_hash, sequence)

    def _withdraw(self, sequence: Sequence, block_hash: bytes) -> None:
        if self._being_computed.get(block_hash) is sequence:
            del self._being_computed[block_hash]

    def _count_admission(self, sequence: Sequence) -> None:
        if sequence.num_cached_tokens is None:
            sequence.num_cached_tokens = sequence.num_computed_tokens
            self.counters.hits += sequence.num_computed_tokens
            self.counters.misses += sequence.num_remaining_tokens
        else:
            self.counters.recomputed += sequence.num_remaining_tokens

    # While it runs

    def grow(self, sequence: Sequence, num_tokens: int) -> bool:
        """Makes the slots of the next `num_tokens` tokens its own to write; False means not now, nothing changed."""
        first = sequence.num_computed_tokens // self.block_size
        num_new = self.blocks_for(sequence.num_computed_tokens + num_tokens) - len(sequence.block_table)
        is_shared = first < len(sequence.block_table) and sequence.block_table[first].ref_count > 1
        if self.pool.num_available < max(0, num_new) + is_shared:
            return False
        self.events.request_id = sequence.request_id
        if is_shared:
            source = sequence.block_table[first]
            num_kept = sequence.num_computed_tokens % self.block_size
            sequence.block_table[first] = self._take_copy(source, num_kept)
            self.pool.release(source)
        sequence.block_table += [self.pool.take() for _ in range(num_new)]
        return True

    def trim(self, sequence: Sequence) -> None:
        """Gives back the blocks behind its computed tokens, which guesses took that turned out wrong."""
        num_needed = self.blocks_for(sequence.num_computed_tokens)
        self.events.request_id = sequence.request_id
        for block in reversed(sequence.block_table[num_needed:]):
            self.pool.release(block)
        del sequence.block_table[num_needed:]

    def publish(self, sequence: Sequence) -> None:
        """Publishes the blocks that the last step has filled."""
        if not self._prefix_caching:
            return
        self.events.request_id = sequence.request_id
        num_full = sequence.num_computed_tokens // self.block_size
        hashes = self._hashes(sequence, num_full)
        for block_hash in hashes[sequence.num_published_blocks : num_full]:
            self._withdraw(sequence, block_hash)
        if sequence.is_hidden:
            return
        for position in range(sequence.num_published_blocks, num_full):
            block_hash = hashes[position]
            parent = sequence.block_table[position - 1] if position else sequence.root
            tokens = self._tokens(sequence, position)
            published = self.pool.index.find_full(parent, block_hash, tokens)
            if published is not None:
                self.pool.acquire(published)
                self.pool.release(sequence.block_table[position])
                sequence.block_table[position] = published
            elif self.pool.index.hash_is_taken(block_hash):
                # Other tokens under the same hash. Not even once it is free: a fork that shares this block would hold
                # those behind it, but not the equal one of others that they would hang under by then.
                sequence.is_hidden = True
                return
            else:
                self.pool.publish(sequence.block_table[position], parent, tokens, block_hash)
            sequence.num_published_blocks = position + 1

    def fork(self, parent: Sequence, child: Sequence) -> None:
        """The child shares every block of the parent, the partly filled one too."""
        self.events.request_id = child.request_id
        for block in parent.block_table:
            self.pool.acquire(block)
        child.block_table = list(parent.block_table)
        child.num_published_blocks = parent.num_published_blocks
        child.is_hidden = parent.is_hidden

    def forget_tail(self, sequence: Sequence) -> None:
        """From now on what it has behind its published blocks counts as not computed.

        For one that a failed step may have half written, and for one whose last tokens nobody will ask for again.
        """
        sequence.num_computed_tokens = sequence.num_published_blocks * self.block_size

    def free(self, sequence: Sequence) -> None:
        """Takes all blocks back; what is computed stays findable until the space is needed."""
        self.events.request_id = sequence.request_id
        self._publish_tail(sequence)
        for block_hash in sequence.block_hashes:
            self._withdraw(sequence, block_hash)
        for block in reversed(sequence.block_table):
            if block.ref_count == 1:
                self._copies.pop(block, None)
            self.pool.release(block)
        sequence.block_table = []
        sequence.num_published_blocks = 0
        sequence.is_hidden = False
        sequence.num_computed_tokens = 0

    def _publish_tail(self, sequence: Sequence) -> None:
        position, num_tokens = divmod(sequence.num_computed_tokens, self.block_size)
        if not self._prefix_caching or not num_tokens or position != sequence.num_published_blocks:
            return  # the last also where the chain is hidden
        tail = sequence.block_table[position]
        # A shared tail belongs to those who still write it; one whose copy is still to come holds nothing yet.
        if tail.ref_count > 1 or tail in self._copies:
            return
        parent = sequence.block_table[position - 1] if position else sequence.root
        start = position * self.block_size
        tokens = sequence.token_ids[start : start + num_tokens]
        if self.pool.index.find_longest(parent, tokens)[1] < num_tokens:
            self.pool.publish(tail, parent, tokens, None)

    # Copies

    def _take_copy(self, source: Block, num_tokens: int) -> Block:
        destination = self.pool.take()
        if destination is not source:  # a free source may be the very block that is taken: its tokens lie there already
            assert source not in self._copies, "copied from a block whose own copy is still to come"
            self._copies[destination] = source
        self.counters.copies += 1
        self.events.record(EventKind.COPIED, destination.block_id, 1, num_tokens=num_tokens, source_id=source.block_id)
        return destination

    def take_copies(self) -> tuple[tuple[int, int], ...]:
        """(source, destination) of every copy that the next step must do; they count as done from here on."""
        copies = tuple((source.block_id, destination.block_id) for destination, source in self._copies.items())
        self._copies.clear()
        return copies

    # Bookkeeping

    def _tokens(self, sequence: Sequence, position: int) -> list[int]:
        start = position * self.block_size
        return sequence.token_ids[start : start + self.block_size]

    def _hashes(self, sequence: Sequence, num_blocks: int) -> list[bytes]:
        """The hashes of the first full blocks, each computed once; tokens only ever grow at the end."""
        hashes = sequence.block_hashes
        while len(hashes) < num_blocks:
            parent_hash = hashes[-1] if hashes else sequence.root.block_hash
            hashes.append(self.hasher.block(parent_hash, self._tokens(sequence, len(hashes))))
        return hashes

    def check_integrity(self, holders: Tokens[Sequence]) -> None:
        """Raises AssertionError unless pool, index and the given holders of blocks agree."""
        self.pool.check_integrity()
        counts: dict[Block, int] = {}
        for sequence in holders:
            for block in sequence.block_table:
                counts[block] = counts.get(block, 0) + 1
            assert len(sequence.block_table) * self.block_size >= sequence.num_computed_tokens, "KV without a block"
            for position, block in enumerate(sequence.block_table[: sequence.num_published_blocks]):
                parent = sequence.block_table[position - 1] if position else sequence.root
                assert block.parent == parent, f"block {block.block_id} is published under another parent"
                assert block.token_ids == tuple(self._tokens(sequence, position)), (
                    f"block {block.block_id} says it holds other tokens"
                )
        for block in self.pool.blocks:
            held = counts.get(block, 0)
            assert block.ref_count == held, f"block {block.block_id} counts {block.ref_count} holders and has {held}"
        for sequence in self._being_computed.values():
            assert sequence.block_table, "a block is expected from a sequence that doesn't run"
