"""How far a model's loading has come, for whoever shows it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

LoadStage = Literal["download", "convert", "load", "warm up"]


@dataclass(frozen=True, slots=True)
class LoadProgress:
    """One report: `done` of `total` units of a stage (bytes for downloads; total is None where it isn't known)."""

    stage: LoadStage
    done: int
    total: int | None


OnProgress = Callable[[LoadProgress], None]


def ignore_progress(_: LoadProgress) -> None:
    """The listener for callers who don't show progress."""
