"""What one tab's panel is told: the whole pool once, then what has changed since it was told last."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from typing import Any

from ..cache_view.block_view import LOOKS, LogLine, PoolView
from .page_socket import News

MAX_LINES = 100  # of the log, in one piece of news
_CHUNK = 256  # blocks; most chunks are as before, which is found out at once


@dataclass(frozen=True, slots=True)
class BlockRun:
    """Blocks that follow each other and look alike."""

    first_id: int
    num_blocks: int
    letter: str
    ref_count: int


class PanelFeed:
    """Compares the newest picture with the one that its tab has: a slow tab misses pictures, never a change."""

    def __init__(self) -> None:
        self._told: PoolView | None = None
        self._num_told_lines = 0
        self._has_told = False

    def news(self, view: PoolView | None, log: Sequence[LogLine], num_lines: int) -> News | None:
        """What the tab doesn't know yet; None if it knows all. `num_lines` were written, `log` has the newest."""
        told, self._told = self._told, view
        has_told, self._has_told = self._has_told, True
        if view is None:
            return None if has_told and told is None else {"kind": "no pool"}
        is_whole = told is None or len(told.states) != len(view.states)
        if is_whole:
            self._num_told_lines = 0
        num_new_lines = min(num_lines - self._num_told_lines, len(log), MAX_LINES)
        self._num_told_lines = num_lines
        news: News = {
            "runs": [[run.first_id, run.num_blocks, run.letter, run.ref_count] for run in _runs(told, view)],
            "log": [_line(line) for line in islice(log, len(log) - num_new_lines, None)],
        }
        if told is None or _figures(told) != _figures(view):
            news["figures"] = _figures(view)
        if is_whole:
            news["num_blocks"] = len(view.states)
            news["legend"] = [
                {"letter": look.letter, "word": state, "meaning": look.meaning} for state, look in LOOKS.items()
            ]
        elif not any(news.values()):
            return None
        return {"kind": "pool", **news}


def changed_runs(before: PoolView, after: PoolView) -> Iterator[BlockRun]:
    """The blocks that another state or number is to be shown of; both pictures are of one pool."""
    return _runs_of(after, _changed_places(before, after))


def all_runs(view: PoolView) -> Iterator[BlockRun]:
    return _runs_of(view, range(len(view.states)))


def _runs(before: PoolView | None, after: PoolView) -> Iterator[BlockRun]:
    is_whole = before is None or len(before.states) != len(after.states)
    return all_runs(after) if before is None or is_whole else changed_runs(before, after)


def _changed_places(before: PoolView, after: PoolView) -> Iterator[int]:
    for start in range(0, len(after.states), _CHUNK):
        chunk = slice(start, start + _CHUNK)
        states, ref_counts = after.states[chunk], after.ref_counts[chunk]
        old_states, old_counts = before.states[chunk], before.ref_counts[chunk]
        if states != old_states or ref_counts != old_counts:
            for place in range(len(states)):
                if states[place] is not old_states[place] or ref_counts[place] != old_counts[place]:
                    yield start + place


def _runs_of(view: PoolView, places: Iterable[int]) -> Iterator[BlockRun]:
    """Places that follow each other and look alike become one run; block ids begin at 1."""

    def key(numbered: tuple[int, int]) -> tuple[int, str, int]:
        number, place = numbered
        return place - number, view.states[place].look.letter, view.ref_counts[place]

    for (_, letter, ref_count), run in groupby(enumerate(places), key):
        (_, first), *rest = run
        yield BlockRun(first + 1, 1 + len(rest), letter, ref_count)


def _figures(view: PoolView) -> News:
    return {
        "hit_rate": view.hit_rate,
        "held": view.num_held,
        "shared": view.num_shared,
        "cached": view.num_cached,
        "free": view.num_free,
        "freed": view.frees,
        "copies": view.copies,
        "evictions": view.evictions,
        "saved": view.saved_words,
    }


def _line(line: LogLine) -> list[Any]:
    return [line.time_s, line.word, line.count, line.request_id]
