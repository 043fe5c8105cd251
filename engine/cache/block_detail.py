"""One block looked at closely: what it holds, where in a prompt, and who holds it."""

from __future__ import annotations

from collections.abc import Sequence as ListOf
from dataclasses import dataclass, replace

from ..sequence import Sequence
from .block import Block, Root


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockDetail:
    """A block at one moment.

    token_ids: what is written in it, as far as anybody knows; nothing for a free block.
    first_position: of its first token in the prompt that it belongs to; None where it holds nothing.
    block_hash: in hex; None unless it is full and can be found.
    parent_id: the block before it; None where it is the first one, or holds nothing.
    holders: (request id, sample) of those that have it in their block table.
    root: where its chain begins, which says whose it is; None where it holds nothing.
    is_withheld: what it holds and for whom was taken out, for it is somebody else's.
    """

    block_id: int
    ref_count: int
    token_ids: tuple[int, ...]
    first_position: int | None
    block_hash: str | None
    parent_id: int | None
    holders: tuple[tuple[str, int], ...]
    root: Root | None = None
    is_withheld: bool = False

    def without_contents(self) -> BlockDetail:
        """For those whom its text is no business of."""
        return replace(
            self, token_ids=(), first_position=None, block_hash=None, parent_id=None, holders=(), is_withheld=True
        )


def block_detail(block: Block, running: ListOf[Sequence], block_size: int) -> BlockDetail:
    """Looks only; `running` are all sequences that may have the block in their table."""
    holders = [sequence for sequence in running if block in sequence.block_table]
    depth, parent, token_ids = None, None, block.token_ids
    root: Root | None = None
    if block.is_published:
        parent = block.parent
        depth, root = _place(block)
    elif holders:
        # It can't be found yet, but who writes it knows how far that has come.
        writer = holders[0]
        root = writer.root
        depth = writer.block_table.index(block)
        parent = writer.block_table[depth - 1] if depth else None
        start = depth * block_size
        token_ids = tuple(writer.token_ids[start : min(start + block_size, writer.num_computed_tokens)])
    return BlockDetail(
        block_id=block.block_id,
        ref_count=block.ref_count,
        token_ids=token_ids,
        first_position=None if depth is None else depth * block_size,
        block_hash=block.block_hash.hex() if block.block_hash is not None else None,
        parent_id=parent.block_id if isinstance(parent, Block) else None,
        holders=tuple((sequence.request_id, sequence.sample) for sequence in holders),
        root=root,
    )


def _place(block: Block) -> tuple[int, Root | None]:
    """How many blocks stand between it and the root of its chain, and that root."""
    num_above, parent = 0, block.parent
    while isinstance(parent, Block):
        parent = parent.parent
        num_above += 1
    return num_above, parent
