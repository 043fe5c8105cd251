"""The strip under a reply, as it is sent: how many of its blocks were found, copied and computed."""

from __future__ import annotations

from dataclasses import dataclass

from ..cache_view.block_strip import StripKind, strip_of
from ..chats import ReplyCost


@dataclass(frozen=True, slots=True)
class StripView:
    """runs: what became of how many blocks, in order; where `is_partial`, the last block isn't full.

    words: the same for those who don't see it.
    """

    runs: tuple[tuple[StripKind, int], ...]
    is_partial: bool
    words: str


def strip_view(cost: ReplyCost | None) -> StripView | None:
    """None where there is nothing to show: a question, or a reply that isn't written yet."""
    if cost is None:
        return None
    strip = strip_of(cost)
    return StripView(strip.runs, strip.is_partial, str(strip)) if strip.runs else None
