"""The longest cached beginning of a prompt, and why it ends where it does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .block import Block, Parent, Root
from .block_hash import BlockHasher
from .block_pool import BlockPool
from .prefix_index import common_length
from .prefix_probe import CachedCandidate, MissKind, PrefixMiss


@dataclass(frozen=True, slots=True)
class PrefixMatch:
    """Blocks that are shared as they are, and one whose first `num_partial_tokens` are copied."""

    blocks: list[Block]
    partial: Block | None
    num_partial_tokens: int

    def num_tokens(self, block_size: int) -> int:
        return len(self.blocks) * block_size + self.num_partial_tokens


class PrefixMatcher:
    """Looks prompts up in a pool; changes nothing in it."""

    def __init__(self, pool: BlockPool, hasher: BlockHasher, block_size: int) -> None:
        self._pool = pool
        self._hasher = hasher
        self._block_size = block_size

    def match(self, token_ids: Sequence[int], root: Root, known_hashes: Sequence[bytes] = ()) -> PrefixMatch:
        """Whole blocks from the root on, then the longest common part of one more; never the last token.

        known_hashes: of the first full blocks of `token_ids`, as far as they were computed before.
        """
        blocks: list[Block] = []
        limit = len(token_ids) - 1
        parent: Parent = root
        for end in range(self._block_size, limit + 1, self._block_size):
            tokens = token_ids[end - self._block_size : end]
            position = len(blocks)
            if position < len(known_hashes):
                block_hash = known_hashes[position]
            else:
                block_hash = self._hasher.block(parent.block_hash or b"", tokens)
            block = self._pool.index.find_full(parent, block_hash, tokens)
            if block is None:
                break
            blocks.append(block)
            parent = block
        start = len(blocks) * self._block_size
        rest = token_ids[start : min(limit, start + self._block_size)]
        partial, num_partial_tokens = self._pool.index.find_longest(parent, rest)
        return PrefixMatch(blocks, partial, num_partial_tokens)

    def miss(self, token_ids: Sequence[int], root: Root, match: PrefixMatch) -> PrefixMiss | None:
        """What is known of the first token that isn't found; None where only the last one is left to compute."""
        index, evicted = self._pool.index, self._pool.evicted
        missing = match.num_tokens(self._block_size)
        if missing >= len(token_ids) - 1:
            return None
        parent: Parent = match.blocks[-1] if match.blocks else root
        start = len(match.blocks) * self._block_size
        num_evicted = evicted.num_tokens(parent.block_hash or b"", token_ids[start:], self._block_size)
        num_evicted = max(0, start + num_evicted - missing)
        if num_evicted:
            kind = MissKind.EVICTED
        else:
            kind = MissKind.NOT_REMEMBERED if evicted.num_forgotten else MissKind.NEVER_SEEN
        candidate = match.partial or index.any_child(parent)
        return PrefixMiss(
            kind=kind,
            token_index=missing,
            block_index=missing // self._block_size,
            token_id=token_ids[missing],
            num_evicted_tokens=num_evicted,
            candidate=None if candidate is None else _candidate(candidate, token_ids[start:]),
            is_root_empty=root not in index.roots,
            num_other_roots=len(index.roots) - (root in index.roots),
        )


def _candidate(block: Block, token_ids: Sequence[int]) -> CachedCandidate:
    """`token_ids` are those that the prompt has in the block's place, and what follows."""
    num_common = common_length(block.token_ids, token_ids)
    other = block.token_ids[num_common] if num_common < len(block.token_ids) else None
    return CachedCandidate(block_id=block.block_id, num_common_tokens=num_common, token_id=other)
