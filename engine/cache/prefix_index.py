"""Finds published blocks again: full ones by their hash, any of them through their parent."""

from collections.abc import Iterable, Sequence

from .block import Block, Parent, Root


class PrefixIndex:
    """The tree of published blocks.

    Always: a full block is in the hash map under its own hash, unless another block with that hash came first
            (then it isn't published at all);
            a published block is among the children of its parent, and its parent is a root or published itself.
    """

    def __init__(self) -> None:
        self._by_hash: dict[bytes, Block] = {}
        # By the first token, then by id: siblings are many where chats part, those that agree in a token are few.
        self._children: dict[Parent, dict[int, dict[int, Block]]] = {}
        self.roots: dict[Root, None] = {}  # that have children, in the order in which they got the first
        self.num_published = 0

    def find_full(self, parent: Parent, block_hash: bytes, token_ids: Sequence[int]) -> Block | None:
        """The full block that holds exactly these tokens after exactly this parent.

        Equal hashes alone prove nothing; the tokens and the parent do.
        """
        block = self._by_hash.get(block_hash)
        if block is None or block.parent != parent or block.token_ids != tuple(token_ids):
            return None
        return block

    def find_longest(self, parent: Parent, token_ids: Sequence[int]) -> tuple[Block | None, int]:
        """The child, full or partial, with most leading tokens in common, and how many they are."""
        best, best_length = None, 0
        if not token_ids:
            return best, best_length
        for block in self._alike(parent, token_ids[0]):
            length = common_length(block.token_ids, token_ids)
            if length > best_length:
                best, best_length = block, length
                if length == len(token_ids):
                    break
        return best, best_length

    def any_child(self, parent: Parent) -> Block | None:
        """A block that follows here, whatever it holds; one of the newer ones."""
        children = self._children.get(parent)
        return next(iter(next(reversed(children.values())).values())) if children else None

    def partial_prefixes(self, parent: Parent, token_ids: Sequence[int]) -> list[Block]:
        """The partial children that hold nothing but a beginning of these tokens."""
        return [
            block
            for block in self._alike(parent, token_ids[0])
            if block.block_hash is None and common_length(block.token_ids, token_ids) == len(block.token_ids)
        ]

    def hash_is_taken(self, block_hash: bytes) -> bool:
        return block_hash in self._by_hash

    def add(self, block: Block, parent: Parent, token_ids: Sequence[int], block_hash: bytes | None) -> None:
        assert not block.is_published, "published a block twice"
        assert not isinstance(parent, Block) or parent.is_published, "published a block under one that can't be found"
        block.parent, block.token_ids, block.block_hash = parent, tuple(token_ids), block_hash
        if block_hash is not None:
            assert block_hash not in self._by_hash, "two blocks under one hash"
            self._by_hash[block_hash] = block
        self._children.setdefault(parent, {}).setdefault(block.token_ids[0], {})[block.block_id] = block
        if isinstance(parent, Root):
            self.roots.setdefault(parent)
        self.num_published += 1

    def remove(self, block: Block) -> None:
        parent = block.parent
        assert parent is not None, "removed a block that isn't published"
        assert block not in self._children, "removed a block whose children would be lost with it"
        if block.block_hash is not None:
            del self._by_hash[block.block_hash]
        children = self._children[parent]
        alike = children[block.token_ids[0]]
        del alike[block.block_id]
        if not alike:
            del children[block.token_ids[0]]
        if not children:
            del self._children[parent]
            if isinstance(parent, Root):
                del self.roots[parent]
        block.parent, block.token_ids, block.block_hash = None, (), None
        self.num_published -= 1

    def check_integrity(self, blocks: Sequence[Block]) -> None:
        """Compares hash map, children and blocks with each other; raises AssertionError where they differ."""
        published = [block for block in blocks if block.is_published]
        assert len(published) == self.num_published, "the count of published blocks is off"
        full = {block.block_hash: block for block in published if block.block_hash is not None}
        assert full == self._by_hash, "the hash map and the blocks disagree"
        in_children = [
            (parent, first, block)
            for parent, children in self._children.items()
            for first, alike in children.items()
            for block in alike.values()
        ]
        assert len(in_children) == len(published), "the index of children and the blocks disagree"
        for parent, first, block in in_children:
            assert block.parent == parent, f"block {block.block_id} is under the wrong parent"
            assert block.token_ids[0] == first, f"block {block.block_id} is under another token than its first"
            if isinstance(parent, Block):
                assert parent.is_published, f"block {block.block_id} hangs under one that can't be found"
                assert parent.block_hash is not None, f"block {block.block_id} hangs under a partial one"
        assert all(children and all(children.values()) for children in self._children.values()), "an entry is empty"
        roots = {parent for parent in self._children if isinstance(parent, Root)}
        assert roots == self.roots.keys(), "the list of roots is off"

    def _alike(self, parent: Parent, first_token: int) -> Iterable[Block]:
        """The children that begin with this token."""
        return self._children.get(parent, {}).get(first_token, {}).values()


def common_length(first: Sequence[int], second: Sequence[int]) -> int:
    """How many leading tokens two sequences share."""
    length = min(len(first), len(second))
    return next((i for i in range(length) if first[i] != second[i]), length)
