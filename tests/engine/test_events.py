"""Events for whoever watches the blocks: exactly what happened, in order; recording never waits for a reader."""

import itertools
import threading
import time

import pytest

from foretelling import ForetellingDrafter
from paged_chat.engine.core import EngineCore
from paged_chat.engine.events import EventKind, EventLog
from slot_runner import Listener, SlotRunner, ask, greedy, make_core, preempt

PROMPT = [1 + i % 49 for i in range(40)]


def happened(core: EngineCore, since: int = 0) -> list[str]:
    """Each event in short: `published 1 (16)`, `copied 2 -> 3 (4)`."""
    lines = []
    for event in core.events.since(since):
        block = f"{event.source_id} -> {event.block_id}" if event.kind is EventKind.COPIED else str(event.block_id)
        lines.append(f"{event.kind} {block}" + (f" ({event.num_tokens})" if event.num_tokens else ""))
    return lines


@pytest.fixture
def core() -> EngineCore:
    return make_core(num_blocks=6)


def test_a_first_prompt_is_allocated_published_and_freed(core):
    ask(core, PROMPT[:20])
    assert happened(core) == [
        "allocated 1",
        "allocated 2",
        "published 1 (16)",
        "published 2 (4)",
        "freed 2 (4)",
        "freed 1 (16)",
    ]


def test_the_same_prompt_again_hits_and_copies(core):
    ask(core, PROMPT[:20])
    since = core.events.next_number
    ask(core, PROMPT[:20])
    assert happened(core, since) == ["hit 1 (16)", "allocated 3", "copied 2 -> 3 (3)", "freed 3", "freed 1 (16)"]


def test_a_block_that_somebody_holds_is_shared(core):
    listener = Listener(core)
    core.submit(PROMPT[:20], greedy(9))
    listener.step()
    since = core.events.next_number
    core.submit([*PROMPT[:16], 49], greedy(1))
    listener.step()
    assert happened(core, since) == ["shared 1 (16)", "allocated 3", "published 3 (1)", "freed 3 (1)"]


def test_replies_that_part_share_and_then_copy(core):
    listener = Listener(core)
    core.submit(PROMPT[:20], greedy(2, n=3))
    listener.step()
    assert happened(core) == [
        "allocated 1",
        "allocated 2",
        "published 1 (16)",
        *["shared 1 (16)", "shared 2"] * 2,
    ]
    since = core.events.next_number
    listener.step()
    # One copy for each writer that parts, none for the last owner.
    assert happened(core, since)[:4] == ["allocated 3", "copied 2 -> 3 (4)", "allocated 4", "copied 2 -> 4 (4)"]
    assert sum(line.startswith("copied") for line in happened(core)) == 2
    assert [event.ref_count for event in core.events.since(0) if event.kind is EventKind.SHARED] == [2, 2, 3, 3]


def test_what_is_given_up_for_space_is_evicted(core):
    ask(core, PROMPT[:20])
    since = core.events.next_number
    ask(core, [49, *PROMPT, *PROMPT[:39]])
    assert happened(core, since)[:7] == [
        "allocated 3",
        "allocated 4",
        "allocated 5",
        "evicted 2 (4)",
        "allocated 2",
        "evicted 1 (16)",
        "allocated 1",
    ]


def test_a_reply_publishes_the_blocks_it_fills(core):
    ask(core, PROMPT[:15], greedy(4))
    assert happened(core)[:4] == ["allocated 1", "published 1 (16)", "allocated 2", "published 2 (2)"]


def test_preemption_is_told_with_what_it_frees(core):
    listener = Listener(core)
    request_id = core.submit(PROMPT[:20], greedy(5))
    listener.step()
    since = core.events.next_number
    preempt(core, request_id)
    assert happened(core, since) == ["published 2 (4)", "freed 2 (4)", "freed 1 (16)", "preempted 0"]


def test_a_failed_step_is_told():
    runner = SlotRunner()
    core = make_core(runner, num_blocks=6)
    runner.failures += [RuntimeError("bad step")] * 2
    request_id = core.submit(PROMPT[:20], greedy(5))
    core.step()
    assert happened(core) == ["allocated 1", "allocated 2", "freed 2", "freed 1", "preempted 0"]
    since = core.events.next_number
    core.step()  # again, alone
    assert happened(core, since) == ["allocated 3", "allocated 4", "failed 0", "freed 4", "freed 3"]
    assert {event.request_id for event in core.events.since(0)} == {request_id}


def test_events_name_their_request_and_count_up(core):
    began = time.time()
    first = core.submit(PROMPT[:20], greedy(2))
    second = core.submit([*PROMPT[:16], 49], greedy(2))
    listener = Listener(core)
    listener.run()
    events = core.events.since(0)
    assert [event.number for event in events] == list(range(len(events)))
    assert {event.request_id for event in events} == {first, second}
    assert all(earlier.time_s <= later.time_s for earlier, later in itertools.pairwise(events))
    assert began <= events[0].time_s
    assert events[-1].time_s <= time.time()
    assert core.snapshot().num_events == len(events)


def whose(core: EngineCore, since: int) -> list[str]:
    """Each event in short, behind the request it belongs to: `r1 allocated 1`."""
    return [f"{event.request_id} {event.kind} {event.block_id}" for event in core.events.since(since)]


def test_what_happens_to_several_requests_in_one_step_is_told_of_each():
    """They take turns within a step, and an event names the one whose turn it is."""
    core = make_core(num_blocks=9, drafter=ForetellingDrafter(length=2, num_right=0))
    listener = Listener(core)
    first = core.submit(PROMPT[:15], greedy(4, n=2))
    second = core.submit([49, *PROMPT[:15]], greedy(4))
    listener.step()
    assert whose(core, 0) == [
        f"{first} allocated 1",
        f"{second} allocated 2",
        f"{second} published 2",
        f"{first} shared 1",
    ]
    since = core.events.next_number
    listener.step()
    assert whose(core, since) == [
        # The first of two writers copies, the last writes in place; then each makes room for its guesses.
        f"{first} allocated 3",
        f"{first} copied 3",
        f"{second} allocated 4",
        f"{first} allocated 5",
        f"{first} allocated 6",
        f"{first} published 3",
        f"{first} shared 3",
        f"{first} freed 1",
        f"{first} freed 5",
        f"{first} freed 6",
    ]


def test_what_an_abort_frees_is_told_of_the_one_that_ends(core):
    listener = Listener(core)
    first, second = core.submit(PROMPT[:5], greedy(9)), core.submit([49, *PROMPT[:5]], greedy(9))
    listener.step()
    since = core.events.next_number
    core.abort(first)
    assert whose(core, since) == [f"{first} published 1", f"{first} freed 1"]
    core.abort(second)


def test_a_block_is_told_with_its_holders(core):
    listener = Listener(core)
    core.submit(PROMPT[:20], greedy(2, n=2))
    listener.run()
    counts = {
        kind: [event.ref_count for event in core.events.since(0) if event.kind is kind]
        for kind in (EventKind.ALLOCATED, EventKind.SHARED, EventKind.COPIED, EventKind.PUBLISHED)
    }
    assert counts[EventKind.ALLOCATED] == [1, 1, 1]
    assert counts[EventKind.SHARED] == [2, 2]
    assert counts[EventKind.COPIED] == [1]
    assert counts[EventKind.PUBLISHED][0] == 1


def test_events_add_up_to_the_snapshot(core):
    """A panel that follows the events knows each block's holders without asking."""
    listener = Listener(core)
    for length in (20, 40, 33, 20):
        core.submit(PROMPT[:length], greedy(5, n=2))
        listener.step()
    counts = [0] * 6
    while core.has_unfinished:
        listener.step()
        counts = [0] * 6
        for event in core.events.since(0):
            if event.kind in (EventKind.ALLOCATED, EventKind.HIT, EventKind.SHARED):
                counts[event.block_id] = event.ref_count
            elif event.kind is EventKind.FREED:
                counts[event.block_id] = 0
        assert [count > 0 for count in counts] == [count > 0 for count in core.snapshot().ref_counts]
    assert counts == [0] * 6


# The ring


def test_the_ring_keeps_the_newest_and_numbers_tell_what_is_missing():
    log = EventLog(capacity=5)
    for block_id in range(12):
        log.record(EventKind.ALLOCATED, block_id)
    assert log.next_number == 12
    assert [event.number for event in log.since(0)] == [7, 8, 9, 10, 11]
    assert [event.block_id for event in log.since(9)] == [9, 10, 11]
    assert list(log.since(12)) == []
    assert list(log.since(50)) == []


def test_an_empty_ring_has_nothing_to_tell():
    assert list(EventLog().since(0)) == []


def test_a_reader_that_never_finishes_holds_up_nobody():
    log = EventLog(capacity=4)
    log.record(EventKind.ALLOCATED, 1)
    log.record(EventKind.ALLOCATED, 2)
    reader = iter(log.since(0))
    assert next(reader).block_id == 1
    for block_id in range(3, 10):
        log.record(EventKind.ALLOCATED, block_id)
    assert log.next_number == 9
    assert next(reader).block_id == 2  # what it asked for, though the ring has gone on


def test_readers_beside_the_writer_see_whole_stretches():
    log = EventLog(capacity=64)
    log.record(EventKind.ALLOCATED, 0)
    stop, faults, reads = threading.Event(), [], []

    def read() -> None:
        while not (stop.is_set() and reads):
            numbers = [event.number for event in log.since(0)]
            if numbers != list(range(numbers[0], numbers[-1] + 1)):
                faults.append(numbers)
            reads.append(len(numbers))

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for number in range(1, 5_000):
        log.record(EventKind.ALLOCATED, number)
    stop.set()
    for reader in readers:
        reader.join()
    assert faults == []
    assert max(reads) <= 64
    assert log.next_number == 5_000
