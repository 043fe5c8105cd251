"""Why a reply's prompt found no more in the cache, as it is sent."""

from __future__ import annotations

from dataclasses import dataclass

from ..transcript.miss_reason import MissReason


@dataclass(frozen=True, slots=True)
class WhyView:
    """words: for people. figures: for engineers. is_fault: whether more could have been reused."""

    words: str
    figures: str
    is_fault: bool


def why_view(reason: MissReason | None) -> WhyView | None:
    """None where nothing is known."""
    return None if reason is None else WhyView(str(reason), reason.figures_words, reason.is_fault)
