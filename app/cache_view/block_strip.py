"""The blocks of one reply in a row: which were found, copied or computed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby

from paged_chat.engine.config import EngineConfig

from ..chats import ReplyCost
from .block_view import LOOKS, BlockLook, BlockState

DEFAULT_BLOCK_SIZE = EngineConfig().block_size


class StripKind(StrEnum):
    """What became of a block's tokens; the value is the word for people."""

    HIT = "reused"
    COPIED = "copied"  # the first tokens of it were found in a block that others go on with
    COMPUTED = "computed"

    @property
    def look(self) -> BlockLook:
        """A strip has the pool's letters and colours: found blocks look like shared ones, computed ones like held."""
        return LOOKS[_STATES[self]]


_STATES = {
    StripKind.HIT: BlockState.SHARED,
    StripKind.COPIED: BlockState.COPIED,
    StripKind.COMPUTED: BlockState.HELD,
}


@dataclass(frozen=True, slots=True)
class StripCell:
    """One block of a reply's prompt and text, in order; a partial one is the last and isn't full."""

    kind: StripKind
    is_partial: bool = False


@dataclass(frozen=True, slots=True)
class BlockStrip:
    """The blocks of a reply, from the first token of its prompt to its own last one."""

    cells: tuple[StripCell, ...]

    @property
    def letters(self) -> str:
        """Such as "sssssyhhh"."""
        return "".join(cell.kind.look.letter for cell in self.cells)

    @property
    def short_letters(self) -> str:
        """For where there is no room for a letter each: "37s y 3h"."""
        return " ".join((str(count) if count > 1 else "") + kind.look.letter for kind, count in self.runs())

    def runs(self) -> Iterator[tuple[StripKind, int]]:
        """How many blocks of one kind follow each other."""
        for kind, run in groupby(cell.kind for cell in self.cells):
            yield kind, sum(1 for _ in run)

    def __str__(self) -> str:
        """Such as "reused 37 blocks, copied 1, computed 3"."""
        words = [f"{kind} {count:,}" for kind, count in self.runs()]
        if words:
            words[0] += " block" if next(self.runs())[1] == 1 else " blocks"
        return ", ".join(words)


def strip_of(cost: ReplyCost, block_size: int = DEFAULT_BLOCK_SIZE) -> BlockStrip:
    """From the counts alone: what is found is a beginning, and its last, broken block is copied.

    The last token of a reply is never computed upon, so it has no place in a block.
    """
    num_prompt = cost.num_cached_tokens + cost.num_computed_tokens
    num_tokens = num_prompt + max(0, cost.num_generated_tokens - 1)
    num_hits, num_copied_tokens = divmod(cost.num_cached_tokens, block_size)
    num_full, num_left = divmod(num_tokens, block_size)
    kinds = [StripKind.HIT] * min(num_hits, num_full)
    if num_copied_tokens and len(kinds) < num_full + bool(num_left):
        kinds.append(StripKind.COPIED)
    kinds += [StripKind.COMPUTED] * (num_full + bool(num_left) - len(kinds))
    last = len(kinds) - 1
    return BlockStrip(tuple(StripCell(kind, bool(num_left) and place == last) for place, kind in enumerate(kinds)))
