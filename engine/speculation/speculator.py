"""Decides which guesses a step verifies."""

from collections.abc import Mapping

from ..sequence import Sequence
from .step_cost import StepCost
from .token_guesser import TokenGuesser

LEAST_GAIN = 1.03
"""How much faster than without drafts a step must promise to be: estimates are estimates."""


class Speculator:
    """Chooses for each step the drafts that promise the most tokens a second.

    A drafted token is one more row of the step; if it and those before it are right, it is one more token. With q the
    chance of that, a step of S sequences gives S + Σ q tokens, and takes what its rows take (StepCost). Guesses are
    added, likeliest first, and the number of them that gives the best rate is kept: often none.

    A step with drafts has at most 1 + max_draft_tokens rows. So the longest drafts are for a sequence that runs alone;
    where many run, a step's rows are well used without.
    """

    def __init__(self, max_draft_tokens: int) -> None:
        self._max_draft_tokens = max_draft_tokens
        self._cost = StepCost()

    def draft(self, rooms: Mapping[Sequence, int], max_tokens: int) -> dict[Sequence, list[int]]:
        num_decodes = len(rooms)
        max_tokens = min(max_tokens, 1 + self._max_draft_tokens - num_decodes)
        if max_tokens <= 0:
            return {}
        chances = [
            (chance, sequence)
            for sequence, room in rooms.items()
            if room > 0
            for chance in self._guesser(sequence).chances(min(room, max_tokens))
        ]
        chances.sort(key=lambda guessed: guessed[0], reverse=True)
        best = self._best_count(num_decodes, [chance for chance, _ in chances[:max_tokens]])
        counts: dict[Sequence, int] = {}
        for _, sequence in chances[:best]:
            counts[sequence] = counts.get(sequence, 0) + 1
        return {sequence: self._guesser(sequence).guess(count) for sequence, count in counts.items()}

    def learn(self, num_rows: int, num_drafted: int, seconds: float) -> None:
        self._cost.learn(num_rows, num_drafted, seconds)

    def _best_count(self, num_decodes: int, chances: list[float]) -> int:
        """How many of these guesses to verify."""
        num_tokens = float(num_decodes)
        best_count, best_rate = 0, LEAST_GAIN * num_tokens / self._cost.of(num_decodes)
        for count, chance in enumerate(chances, start=1):
            num_tokens += chance
            rate = num_tokens / self._cost.of(num_decodes + count)
            if rate > best_rate:
                best_count, best_rate = count, rate
        return best_count

    @staticmethod
    def _guesser(sequence: Sequence) -> TokenGuesser:
        """The sequence's own, which knows all of its tokens."""
        if sequence.guesser is None:
            sequence.guesser = TokenGuesser()
        sequence.guesser.follow(sequence.token_ids)
        return sequence.guesser
