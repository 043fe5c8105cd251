"""One watcher: coalesced, paced, read from threads and event loops."""

import asyncio
import threading
import time

import pytest

from paged_chat.app.service.watch import PACE_S, Watcher
from patience import PATIENCE_S


@pytest.fixture
def watcher():
    return Watcher()


def test_what_is_told_before_anyone_reads_waits(watcher):
    watcher.tell("chat", lambda: "changed")
    watcher.tell("reply", lambda: "Hello")
    assert [watcher.get(0), watcher.get(0), watcher.get(0)] == ["changed", "Hello", None]


def test_a_slow_reader_gets_the_last_state_once(watcher):
    said = []

    def read():
        return "".join(said)

    for letter in "Hello":
        said.append(letter)
        watcher.tell("reply", read, paced=True)
    assert watcher.get(0) == "Hello"
    assert watcher.get(0) is None


def test_growth_comes_at_most_every_50_ms_and_the_end_at_once(watcher):
    watcher.tell("reply", lambda: "H", paced=True)
    assert watcher.get(0) == "H"
    start = time.monotonic()
    watcher.tell("reply", lambda: "He", paced=True)
    assert watcher.get(0) is None
    assert watcher.get(PATIENCE_S) == "He"
    assert time.monotonic() - start > PACE_S * 0.9
    watcher.tell("reply", lambda: "Hel", paced=True)
    watcher.tell("reply", lambda: "Hello, whole")
    assert watcher.get(0) == "Hello, whole"


def test_one_reply_that_was_just_told_does_not_hold_up_another(watcher):
    watcher.tell("first", lambda: "a", paced=True)
    assert watcher.get(0) == "a"
    watcher.tell("first", lambda: "ab", paced=True)
    watcher.tell("second", lambda: "x", paced=True)
    assert watcher.get(0) == "x"


def test_news_that_the_reader_knows_already_is_passed_over(watcher):
    watcher.tell("reply", lambda: None)
    watcher.tell("chat", lambda: "changed")
    assert watcher.get(0) == "changed"


def test_a_subject_may_take_its_own_lock_while_it_tells_and_while_it_is_read(watcher):
    """The engine's thread holds the reply's lock and tells; the reader reads and takes it."""
    lock = threading.Lock()
    faults = []

    def read():
        with lock:
            return "x"

    def write():
        for _ in range(2000):
            with lock:
                watcher.tell("reply", read)
        watcher.end()

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    for event in watcher:
        faults += [event] if event != "x" else []
    writer.join(PATIENCE_S)
    assert not writer.is_alive()
    assert faults == []


def test_closing_wakes_a_reader_in_another_thread(watcher):
    ended = threading.Event()

    def read():
        assert list(watcher) == []
        ended.set()

    threading.Thread(target=read, daemon=True).start()
    time.sleep(0.01)
    watcher.close()
    assert ended.wait(PATIENCE_S)
    watcher.close()
    assert watcher.is_closed


def test_closing_drops_what_waits_and_ending_does_not(watcher):
    other = Watcher()
    for each in (watcher, other):
        each.tell("reply", lambda: "the end")
    watcher.close()
    other.end()
    assert list(watcher) == []
    assert not other.is_closed
    assert list(other) == ["the end"]
    assert other.is_closed


def test_what_is_told_after_the_end_is_not_heard(watcher):
    watcher.end()
    watcher.tell("reply", lambda: "late")
    assert watcher.get(0) is None


def test_a_paced_last_word_is_still_told_after_the_end(watcher):
    watcher.tell("reply", lambda: "a", paced=True)
    assert watcher.get(0) == "a"
    watcher.tell("reply", lambda: "ab", paced=True)
    watcher.end()
    assert list(watcher) == ["ab"]


def test_an_event_loop_reads_what_other_threads_tell(watcher):
    def tell():
        for number in range(5):
            watcher.tell(number, lambda number=number: number)
            time.sleep(0.002)
        watcher.tell("last", lambda: "last", paced=True)
        watcher.end()

    async def story():
        async with asyncio.timeout(PATIENCE_S):
            threading.Thread(target=tell).start()
            return [event async for event in watcher]

    assert asyncio.run(story()) == [0, 1, 2, 3, 4, "last"]


def test_on_an_event_loop_growth_is_paced_too(watcher):
    async def story():
        watcher.tell("reply", lambda: "a", paced=True)
        first = await watcher.get_async()
        start = time.monotonic()
        watcher.tell("reply", lambda: "ab", paced=True)
        async with asyncio.timeout(PATIENCE_S):
            second = await watcher.get_async()
        return first, second, time.monotonic() - start

    first, second, wait_s = asyncio.run(story())
    assert (first, second) == ("a", "ab")
    assert wait_s > PACE_S * 0.9


def test_a_cancelled_reader_leaves_the_watcher_whole(watcher):
    async def story():
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await watcher.get_async()
        watcher.tell("reply", lambda: "Hello")
        return await watcher.get_async()

    assert asyncio.run(story()) == "Hello"


def test_a_loop_that_has_ended_harms_nobody(watcher):
    async def give_up():
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await watcher.get_async()

    asyncio.run(give_up())
    watcher.tell("reply", lambda: "Hello")
    assert watcher.get(0) == "Hello"


def test_leaving_a_block_closes(watcher):
    with watcher:
        pass
    assert watcher.is_closed

    async def story():
        async with Watcher() as other:
            pass
        return other.is_closed

    assert asyncio.run(story())


def test_what_waits_for_its_time_is_told_as_it_is_then():
    watcher = Watcher[str]()
    watcher.tell("model", lambda: "loading 1 %", paced=True)
    assert watcher.get(timeout=PATIENCE_S) == "loading 1 %"
    watcher.tell("model", lambda: "loading 2 %", paced=True)
    watcher.tell("model", lambda: "loading 3 %", paced=True)
    assert watcher.get(timeout=PATIENCE_S) == "loading 3 %"
