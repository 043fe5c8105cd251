"""The guesses for one sequence, and how likely they are to be right."""

from collections.abc import Sequence as ListOf

from .prompt_lookup import PromptLookup

CLASS_STARTS = (2, 3, 4, 6, 10)
"""Lengths of a match from which on its guesses count as a class of their own."""
FIRST_RATES = (0.40, 0.45, 0.55, 0.70, 0.90)
"""Of each class the share of right guesses that a sequence begins with (docs/performance.md has what was counted)."""
LEARNING_RATE = 1 / 16  # how much of its class's rate the newest guess decides

_CLASS_OF = [sum(match_len >= start for start in CLASS_STARTS[1:]) for match_len in range(CLASS_STARTS[-1] + 1)]


class TokenGuesser:
    """Follows one sequence's tokens, guesses the next ones, and counts how often it would have been right.

    Every token that comes tells whether its guess was right, also where nothing was drafted: so that a text in which
    guesses fail is known to be one before a single step was spent on it.
    """

    def __init__(self) -> None:
        self._lookup = PromptLookup()
        self._rates = list(FIRST_RATES)

    def follow(self, token_ids: ListOf[int]) -> None:
        """Takes over what was added to the sequence's tokens since the last time; at first all of them, uncounted."""
        lookup, rates = self._lookup, self._rates
        if not len(lookup):
            lookup.extend(token_ids)
        for token_id in token_ids[len(lookup) :]:
            if lookup.match_len:
                place = _CLASS_OF[min(lookup.match_len, CLASS_STARTS[-1])]
                rates[place] += LEARNING_RATE * ((lookup.guess(1)[0] == token_id) - rates[place])
            lookup.extend((token_id,))

    def guess(self, max_tokens: int) -> list[int]:
        """The next tokens, or none."""
        return self._lookup.guess(max_tokens)

    def chances(self, max_tokens: int) -> list[float]:
        """For each token of such a guess how likely it is that it and all before it are right."""
        match_len, chance, chances = self._lookup.match_len, 1.0, []
        if match_len:
            for length in range(match_len, match_len + max_tokens):
                chance *= self._rates[_CLASS_OF[min(length, CLASS_STARTS[-1])]]
                chances.append(chance)
        return chances
