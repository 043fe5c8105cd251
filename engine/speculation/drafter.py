"""What the scheduler and the core ask of whoever guesses tokens ahead; `Speculator`, or a stand-in in tests."""

from collections.abc import Mapping
from typing import Protocol

from ..sequence import Sequence


class Drafter(Protocol):
    def draft(self, rooms: Mapping[Sequence, int], max_tokens: int) -> dict[Sequence, list[int]]:
        """Guesses for a step that computes one token of each of these sequences; those without a guess are left out.

        rooms: how many guessed tokens a sequence has use for.
        max_tokens: how many the step can take on in all.
        """
        ...

    def learn(self, num_rows: int, num_drafted: int, seconds: float) -> None:
        """A step of so many rows, each a decoding or a drafted token, took so long."""
        ...
