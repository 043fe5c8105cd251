"""Guesses how a text goes on from what stands in it already."""

from collections.abc import Iterable

MIN_MATCH = 2  # tokens: the index knows pairs
MAX_PLACES = 8
"""Earlier places that are compared when a match begins; a text that repeats itself has thousands of them."""
MAX_COMPARED = 32
"""Tokens that are compared backwards at each of them."""


class PromptLookup:
    """Finds, in a text that grows by tokens, the place that reads most like its end; what stood behind it is the guess.

    Prompt lookup decoding (Saxena, 2023), with the index of a Lempel-Ziv compressor: for each pair of tokens the last
    place where it ended, and for each such place the one before. A match that the next token continues is one longer,
    and another one is looked for only when it breaks: a token costs O(1), however long the text is.

    Always: token_ids[_source - match_len : _source] are the text's last `match_len` tokens, and _source is a position
            in it; a match_len of 0 says that nothing reads like the end.
    """

    def __init__(self) -> None:
        self._token_ids: list[int] = []
        self._last_end: dict[tuple[int, int], int] = {}  # of each pair
        self._earlier_end = [0]  # by the end of a pair: where the same pair ended before; 0 for nowhere
        self._source = 0  # position of the token that is guessed first
        self.match_len = 0

    def __len__(self) -> int:
        return len(self._token_ids)

    def extend(self, added: Iterable[int]) -> None:
        """Takes over the tokens that were added to the text."""
        token_ids, last_end, earlier_end = self._token_ids, self._last_end, self._earlier_end
        match_len, source = self.match_len, self._source
        previous = token_ids[-1] if token_ids else -1  # no token's id, so no other pair equals the first one
        end = len(token_ids)
        for token_id in added:
            if match_len and token_ids[source] == token_id:
                source += 1
                match_len += 1
            else:
                match_len = 0
            token_ids.append(token_id)
            end += 1
            pair = (previous, token_id)
            earlier_end.append(last_end.get(pair, 0))
            last_end[pair] = end
            previous = token_id
        self.match_len, self._source = match_len, source
        if not match_len:
            self._find()

    def guess(self, max_tokens: int) -> list[int]:
        """The next tokens, as many as asked for; none where nothing reads like the end.

        A place so near the end that its continuation runs into it is taken for a period, which goes on.
        """
        if not self.match_len:
            return []
        guessed = self._token_ids[self._source : self._source + max_tokens]
        period = len(guessed)
        while len(guessed) < max_tokens:
            guessed.append(guessed[-period])
        return guessed

    def _find(self) -> None:
        """Of the latest places the one with the longest match, and of equal ones the latest."""
        end = self._earlier_end[-1]
        for _ in range(MAX_PLACES):
            if not end:
                return
            match_len = self._common(end)
            if match_len > self.match_len:
                self.match_len, self._source = match_len, end
            end = self._earlier_end[end]

    def _common(self, end: int) -> int:
        """How many tokens before `end` are the text's last ones; the last pair is known to be."""
        token_ids = self._token_ids
        length, most = MIN_MATCH, min(end, MAX_COMPARED)
        while length < most and token_ids[end - 1 - length] == token_ids[-1 - length]:
            length += 1
        return length
