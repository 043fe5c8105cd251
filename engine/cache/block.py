"""A KV block and the root that a chain of blocks starts from."""

from __future__ import annotations

from dataclasses import dataclass, field

NULL_BLOCK_ID = 0


@dataclass(frozen=True, slots=True)
class Root:
    """Where the chains of one model, KV format and salt begin.

    Two roots are the same only if their framed fields are, whatever their hashes say.
    """

    framed_fields: bytes
    block_hash: bytes = field(compare=False)


@dataclass(slots=True, eq=False)
class Block:
    """`block_size` KV slots. While published (`parent` is set), `token_ids` says what its leading slots hold.

    A full published block has a `block_hash`; a partial one, kept from the end of a finished sequence, has none.
    """

    block_id: int
    ref_count: int = 0
    token_ids: tuple[int, ...] = ()
    block_hash: bytes | None = None
    parent: Parent | None = None
    previous_free: Block | None = None
    next_free: Block | None = None
    queue: object | None = None  # the free queue that it stands in

    @property
    def is_published(self) -> bool:
        return self.parent is not None

    def __repr__(self) -> str:
        return f"Block({self.block_id}, ref_count={self.ref_count}, tokens={len(self.token_ids)})"


Parent = Root | Block
