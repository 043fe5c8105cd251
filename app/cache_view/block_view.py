"""The pool as both screens draw it: each block's state with its letter and colours, counters, and a running log."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from typing import TYPE_CHECKING

from paged_chat.engine import PoolSnapshot
from paged_chat.engine.events import BlockEvent, EventKind

from ..counted import counted
from ..engine_query import engine_query

if TYPE_CHECKING:
    from paged_chat.engine import Engine

RECENT_S = 2.0  # how long a block shows that it was copied or let go
MAX_LOG_LINES = 200
LEAST_SAVED_S = 0.0005  # that isn't told as 0 ms


class BlockState(StrEnum):
    """What a screen says about a block; the value is the word for people."""

    FREE = "free"
    CACHED = "cached"
    HELD = "held"
    SHARED = "shared"
    COPIED = "copied"
    FREED = "freed"

    @property
    def look(self) -> BlockLook:
        return LOOKS[self]


@dataclass(frozen=True, slots=True)
class BlockLook:
    """How a state is drawn: a letter, colours for a light and a dark page (None: outline only), and what it means."""

    letter: str
    light: str | None
    dark: str | None
    meaning: str


# Colours that differ for colour-blind eyes too (Okabe and Ito), and never without their letter.
LOOKS = {
    BlockState.FREE: BlockLook("·", None, None, "holds nothing"),
    BlockState.CACHED: BlockLook("c", "#9AA7B4", "#5B6770", "nobody uses it now; a hit revives it"),
    BlockState.HELD: BlockLook("h", "#56B4E9", "#3A8FC2", "one sequence holds it"),
    BlockState.SHARED: BlockLook("s", "#E69F00", "#F0B429", "two or more hold it"),
    BlockState.COPIED: BlockLook("y", "#CC79A7", "#D98CB8", "copied just now, because two continuations parted"),
    BlockState.FREED: BlockLook("f", "#D55E00", "#D55E00", "let go just now"),
}

# What people call what happens to blocks; sharing a held block and reviving a cached one are both reuse.
_WORDS = {
    EventKind.HIT: "reused",
    EventKind.SHARED: "reused",
    EventKind.COPIED: "copied",
    EventKind.PUBLISHED: "published",
    EventKind.FREED: "freed",
    EventKind.EVICTED: "evicted",
    EventKind.PREEMPTED: "preempted",
    EventKind.FAILED: "failed",
}


@dataclass(frozen=True, slots=True)
class PoolReading:
    """What a screen asks of the engine each time it draws: the pool now, and what happened since it last asked.

    read_at: Unix time by the clock of the events, which may be set in between: only for how old these events are.
    """

    snapshot: PoolSnapshot
    events: Sequence[BlockEvent]
    read_at: float


@engine_query
def read_pool(engine: Engine, since: int) -> PoolReading:
    """For `ChatService.ask_engine`; `since` is the follower's `next_event`."""
    snapshot = engine.snapshot()
    return PoolReading(snapshot, engine.events(min(since, snapshot.num_events)), time.time())


@dataclass(frozen=True, slots=True)
class LogLine:
    """Events of one kind that came in one go: "14:02:07 reused 13"; `time_s` is Unix time."""

    time_s: float
    word: str
    count: int
    request_id: str

    def __str__(self) -> str:
        return f"{self.word} {self.count}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolView:
    """One picture of the pool.

    states: of blocks 1, 2, and so on (block 0 is no block of anybody's).
    num_blocks_alone: what the sequences that run now would hold if each had its own.
    saved_s: what the reused tokens would have taken to compute; None until a prompt was timed.
    saved_bytes: what the blocks that are shared now would take if everybody had their own.
    """

    states: tuple[BlockState, ...]
    ref_counts: tuple[int, ...]  # of the same blocks
    num_free: int
    num_cached: int
    num_held: int  # by one or more: the shared ones are among them
    num_shared: int
    hit_rate: float
    copies: int
    frees: int
    evictions: int
    num_blocks_alone: int
    saved_s: float | None
    saved_bytes: int
    num_guessed: int = 0  # tokens of replies that were guessed ahead and saved a step

    @property
    def letters(self) -> str:
        """One letter a block."""
        return "".join(state.look.letter for state in self.states)

    @property
    def counts_words(self) -> str:
        """Such as "214 held · 61 shared · 30 cached"."""
        return f"{self.num_held:,} held · {self.num_shared:,} shared · {self.num_cached:,} cached"

    @property
    def saved_words(self) -> str:
        """Such as "saved 1.8 s and 14 MB · 82 blocks instead of 432 · 96 tokens guessed", as far as there are."""
        words = [] if not self.saved_s or self.saved_s < LEAST_SAVED_S else [seconds_words(self.saved_s)]
        words += [bytes_words(self.saved_bytes)] if self.saved_bytes else []
        saved = [f"saved {' and '.join(words)}"] if words else []
        if self.num_blocks_alone != self.num_held:
            saved.append(f"{counted(self.num_held, 'block')} instead of {self.num_blocks_alone:,}")
        if self.num_guessed:
            saved.append(f"{counted(self.num_guessed, 'token')} guessed")
        return " · ".join(saved)


class PoolFollower:
    """Turns one reading after another into pictures and log lines, for one screen.

    Feed it at the screen's own pace: events that the engine's ring has dropped meanwhile are missing from the log,
    never from the picture, which is drawn from the pool itself.
    """

    def __init__(self) -> None:
        self.next_event = 0
        self._num_blocks: int | None = None
        self.log: deque[LogLine] = deque(maxlen=MAX_LOG_LINES)  # oldest first
        self.num_lines = 0  # written into the log so far
        self._copied_at: dict[int, float] = {}  # by block id, as `now_s` in `take`
        self._freed_at: dict[int, float] = {}

    def take(self, reading: PoolReading, now_s: float) -> PoolView:
        """The picture at `now_s`, of `time.monotonic()`."""
        snapshot = reading.snapshot
        if snapshot.num_events < self.next_event or snapshot.num_blocks != (self._num_blocks or snapshot.num_blocks):
            self._begin_anew()  # another model's engine: it counts from 0, its pool is another one
        else:
            self._remember(reading, now_s)
            lines = list(log_lines(reading.events))
            self.log.extend(lines)
            self.num_lines += len(lines)
        self.next_event = snapshot.num_events
        self._num_blocks = snapshot.num_blocks
        self._copied_at = _recent(self._copied_at, now_s)
        self._freed_at = _recent(self._freed_at, now_s)
        return pool_view(snapshot, self._copied_at.keys(), self._freed_at.keys())

    @property
    def is_fading(self) -> bool:
        """Whether the picture changes by itself while nothing happens."""
        return bool(self._copied_at or self._freed_at)

    def _begin_anew(self) -> None:
        self.log.clear()
        self._copied_at.clear()
        self._freed_at.clear()

    def _remember(self, reading: PoolReading, now_s: float) -> None:
        for event in reading.events:
            age_s = max(0.0, reading.read_at - event.time_s)
            if event.kind is EventKind.COPIED:
                self._copied_at[event.block_id] = now_s - age_s
            elif event.kind is EventKind.FREED:
                self._freed_at[event.block_id] = now_s - age_s


def pool_view(snapshot: PoolSnapshot, copied_ids: Iterable[int] = (), freed_ids: Iterable[int] = ()) -> PoolView:
    """The picture of a snapshot, in which some blocks were copied or let go just now."""
    ref_counts = snapshot.ref_counts
    free, cached, held, shared = BlockState.FREE, BlockState.CACHED, BlockState.HELD, BlockState.SHARED
    # One plain pass, for other threads wait meanwhile: half a millisecond with 10,000 blocks.
    states = [
        (held if ref_count == 1 else shared) if ref_count else (cached if num_tokens else free)
        for ref_count, num_tokens in zip(ref_counts, snapshot.token_counts, strict=True)
    ]
    for block_id in freed_ids:
        if not ref_counts[block_id]:
            states[block_id] = BlockState.FREED
    for block_id in copied_ids:
        if ref_counts[block_id]:
            states[block_id] = BlockState.COPIED
    num_blocks_alone = sum(ref_counts)
    pace = snapshot.prefill_s / snapshot.prefill_tokens if snapshot.prefill_tokens else None
    return PoolView(
        states=tuple(states[1:]),
        ref_counts=ref_counts[1:],
        num_free=snapshot.num_free,
        num_cached=snapshot.num_cached,
        num_held=snapshot.num_referenced,
        num_shared=snapshot.num_shared,
        hit_rate=snapshot.hit_rate,
        copies=snapshot.copies,
        frees=snapshot.frees,
        evictions=snapshot.evictions,
        saved_s=None if pace is None else pace * snapshot.hits,
        num_blocks_alone=num_blocks_alone,
        saved_bytes=(num_blocks_alone - snapshot.num_referenced) * snapshot.block_bytes,
        num_guessed=snapshot.accepted_tokens,
    )


def log_lines(events: Iterable[BlockEvent]) -> Iterator[LogLine]:
    """Runs of events that say the same of one request become one line; blocks that are merely taken are no news."""
    told = (event for event in events if event.kind in _WORDS)
    for (word, request_id), run in groupby(told, key=lambda event: (_WORDS[event.kind], event.request_id)):
        first, *rest = run
        yield LogLine(first.time_s, word, 1 + len(rest), request_id)


def seconds_words(seconds: float) -> str:
    """Such as "48 ms", "1.8 s", "3 min"."""
    if seconds < 1:
        return f"{seconds * 1e3:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def bytes_words(num_bytes: int) -> str:
    """In powers of 1,000, such as "14 MB"."""
    if num_bytes < 1_000_000:
        return f"{num_bytes / 1e3:.0f} kB" if num_bytes else "0 MB"
    return f"{num_bytes / 1e6:.0f} MB" if num_bytes < 10_000_000_000 else f"{num_bytes / 1e9:.1f} GB"


def _recent(moments: dict[int, float], now_s: float) -> dict[int, float]:
    return {block_id: moment for block_id, moment in moments.items() if now_s - moment < RECENT_S}
