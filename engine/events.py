"""What happened to blocks and requests, for whoever watches; recording never waits for a reader."""

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class EventKind(StrEnum):
    """What happened to a block."""

    ALLOCATED = "allocated"  # taken from the free queue for new tokens
    HIT = "hit"  # a cached block that nobody held is held again
    SHARED = "shared"  # one more sequence holds a block that is held already
    COPIED = "copied"  # its tokens were copied here from `source_id`
    PUBLISHED = "published"  # others can find it from now on
    EVICTED = "evicted"  # its tokens were given up for the space
    FREED = "freed"  # nobody holds it any more
    PREEMPTED = "preempted"  # a running sequence gave its blocks back (block_id is 0)
    FAILED = "failed"  # it could not be computed; the request has ended (block_id is 0)


@dataclass(frozen=True, slots=True)
class BlockEvent:
    """`number` counts events from the engine's start; `time_s` is Unix time."""

    number: int
    time_s: float
    kind: EventKind
    block_id: int
    ref_count: int
    request_id: str
    num_tokens: int = 0
    source_id: int = 0


class EventLog:
    """The newest events, in a ring: a slow reader loses old ones and learns how many."""

    def __init__(self, capacity: int = 8192) -> None:
        self._ring: deque[BlockEvent] = deque(maxlen=capacity)
        self._next_number = 0
        self.request_id = ""  # on whose behalf blocks move just now

    def record(
        self, kind: EventKind, block_id: int = 0, ref_count: int = 0, num_tokens: int = 0, source_id: int = 0
    ) -> None:
        self._ring.append(
            BlockEvent(
                self._next_number, time.time(), kind, block_id, ref_count, self.request_id, num_tokens, source_id
            )
        )
        self._next_number += 1

    @property
    def next_number(self) -> int:
        return self._next_number

    def since(self, number: int) -> Sequence[BlockEvent]:
        """Events from `number` on that are still kept, oldest first; may be called from any thread."""
        while True:
            try:
                kept = list(self._ring)
            except RuntimeError:  # the engine appended while we copied; its append is the quicker one
                continue
            missing = number - (kept[0].number if kept else self._next_number)
            return kept[max(0, missing) :]
