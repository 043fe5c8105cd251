"""Stop strings across token borders: what may be shown, and whether a stop string has come.

The automaton of Aho and Corasick ("Efficient string matching", 1975). Its state is the longest end of the text so far
that begins some stop string, and exactly that end is held back: it is the least that could still become part of a stop
string, so nothing of a stop string is ever shown and nothing is held a character longer than needed.
"""

from collections import deque
from collections.abc import Sequence
from copy import copy


class StopStrings:
    """Watches one reply's text for the first stop string.

    The stop string that is complete first ends the reply, so the answer doesn't depend on how the text was cut into
    pieces; of those completed by the same character the longest counts, being the one that begins first. Text from its
    first character on is dropped.

    Always: text pushed == text shown + text held   (until a stop string matches)
            the held text is the longest end of the pushed text that begins a stop string
    """

    def __init__(self, stops: Sequence[str] = ()) -> None:
        assert all(stops), "an empty stop string matches everywhere"
        self._next, self._fallback, self._depth, self._match = _build(stops)
        self._state = 0
        self._held = ""
        self._matched: str | None = None

    def fork(self) -> "StopStrings":
        """One that goes on from here by itself."""
        return copy(self)  # what is written to is never changed in place

    def push(self, text: str) -> tuple[str, str | None]:
        """Take the next piece of text; return what may be shown now, and the stop string once one is complete.

        After a match nothing more is shown and the same stop string is returned. Amortised O(1) a character.
        """
        if self._matched is not None:
            return "", self._matched
        if len(self._next) == 1:
            return text, None
        pending = self._held + text
        for index, character in enumerate(text, start=len(self._held) + 1):
            self._state = self._step(self._state, character)
            stop = self._match[self._state]
            if stop is not None:
                self._matched = stop
                self._held = ""
                return pending[: index - len(stop)], stop
        num_shown = len(pending) - self._depth[self._state]
        self._held = pending[num_shown:]
        return pending[:num_shown], None

    def finish(self) -> str:
        """The text ended: return what was held back, since it can't become a stop string any more."""
        held, self._held, self._state = self._held, "", 0
        return held

    def _step(self, state: int, character: str) -> int:
        while (following := self._next[state].get(character)) is None:
            if state == 0:
                return 0
            state = self._fallback[state]
        return following


def _build(stops: Sequence[str]) -> tuple[list[dict[str, int]], list[int], list[int], list[str | None]]:
    """The trie of the stop strings; for each node its fallback, its depth, and the longest stop string it ends with."""
    children: list[dict[str, int]] = [{}]
    depth = [0]
    match: list[str | None] = [None]
    for stop in stops:
        node = 0
        for character in stop:
            if character not in children[node]:
                children[node][character] = len(children)
                children.append({})
                depth.append(depth[node] + 1)
                match.append(None)
            node = children[node][character]
        match[node] = stop

    fallback = [0] * len(children)
    queue = deque(children[0].values())
    while queue:
        node = queue.popleft()
        for character, child in children[node].items():
            candidate = fallback[node]
            while candidate and character not in children[candidate]:
                candidate = fallback[candidate]
            fallback[child] = children[candidate].get(character, 0)
            match[child] = match[child] or match[fallback[child]]
            queue.append(child)
    return children, fallback, depth, match
