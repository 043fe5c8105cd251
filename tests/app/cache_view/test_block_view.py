"""What both screens show of the pool, from a real pool's readings. Blocks hold 16 tokens."""

import time
from dataclasses import replace

import pytest

from chat_desk import until
from fake_engine import FakeEngine
from paged_chat.app.cache_view.block_view import (
    BlockState,
    PoolFollower,
    bytes_words,
    log_lines,
    read_pool,
    seconds_words,
)
from paged_chat.engine import EngineConfig, SamplingParams
from paged_chat.engine.events import BlockEvent, EventKind
from patience import PATIENCE_S

LATER_S = 3.0


class Pool:
    """A small pool, driven step by step and read as a screen reads it."""

    def __init__(self, fake: FakeEngine) -> None:
        self.fake = fake
        self.served = fake.open(EngineConfig(model="fake"), lambda _: None)
        self.follower = PoolFollower()
        self._now_s = time.monotonic()

    def ask(self, prompt: list[int], *replies: str) -> None:
        self.fake.enqueue(*replies)
        self.served.submit(prompt, SamplingParams(n=len(replies)), lambda _: None).result(PATIENCE_S)

    def finish(self) -> None:
        self.fake.go()
        until(lambda: not self.served.call(lambda engine: engine.has_unfinished).result(PATIENCE_S))

    def look(self, after_s: float = 0.0, age_s: float = 0.0):
        """As if it were so much later, and the first of the new events so old."""
        reading = self.served.call(lambda engine: read_pool(engine, self.follower.next_event)).result(PATIENCE_S)
        if reading.events:
            reading = replace(reading, read_at=reading.events[0].time_s + age_s)
        return self.follower.take(reading, self._now_s + after_s)


@pytest.fixture
def pool():
    fake = FakeEngine(num_blocks=13)
    yield Pool(fake)
    fake.close()


def test_an_empty_pool_is_free_blocks(pool):
    view = pool.look()
    assert view.letters == "············"
    assert view.counts_words == "0 held · 0 shared · 0 cached"
    assert view.saved_words == ""
    assert list(pool.follower.log) == []


def test_a_reply_holds_its_blocks_lets_them_go_and_leaves_them_cached(pool):
    pool.fake.hold()
    pool.ask(list(range(10, 50)), "hi")
    pool.fake.let(1)
    until(lambda: pool.look().num_held > 0)
    assert pool.look().letters == "hhh·········"
    pool.finish()
    assert pool.look().letters == "fff·········"
    assert pool.follower.is_fading
    assert pool.look(after_s=LATER_S).letters == "ccc·········"
    assert not pool.follower.is_fading


def test_what_was_let_go_while_nobody_looked_is_no_news(pool):
    pool.ask(list(range(10, 50)), "hi")
    pool.finish()
    assert pool.look(age_s=LATER_S).letters == "ccc·········"


def test_a_clock_that_is_set_back_makes_nothing_recent_for_longer(pool):
    pool.ask(list(range(10, 50)), "hi")
    pool.finish()
    assert pool.look(age_s=-3600.0).letters == "fff·········"
    assert pool.look(after_s=LATER_S).letters == "ccc·········"


def test_what_two_replies_share_is_shown_and_where_they_part_is_copied(pool):
    pool.ask(list(range(10, 50)), "ab", "cd")
    pool.finish()
    view = pool.look()
    assert view.copies == 1
    assert view.states.count(BlockState.FREED) == 4
    assert [str(line) for line in pool.follower.log][:3] == ["published 2", "reused 3", "copied 1"]
    # The second holder's leaving frees the two full blocks; each lets go of a tail of its own.
    assert sum(line.count for line in pool.follower.log if line.word == "freed") == 4


def test_the_log_groups_what_came_in_one_go_and_leaves_out_plain_allocation():
    def event(number, kind, request_id="r1"):
        return BlockEvent(number, 100.0 + number, kind, number + 1, 1, request_id)

    kinds = [EventKind.ALLOCATED, EventKind.HIT, EventKind.SHARED, EventKind.COPIED, EventKind.FREED]
    lines = list(log_lines([*(event(i, kind) for i, kind in enumerate(kinds)), event(5, EventKind.FREED, "r2")]))
    assert [(str(line), line.request_id, line.time_s) for line in lines] == [
        ("reused 2", "r1", 101.0),
        ("copied 1", "r1", 103.0),
        ("freed 1", "r1", 104.0),
        ("freed 1", "r2", 105.0),
    ]


def test_another_engine_begins_anew(pool):
    pool.ask(list(range(10, 50)), "hi")
    pool.finish()
    pool.look()
    other = Pool(FakeEngine(num_blocks=5))
    other.follower = pool.follower
    assert other.look().letters == "····"
    assert list(other.follower.log) == []
    other.fake.close()


def test_savings_are_in_plain_units():
    assert [seconds_words(s) for s in (0.048, 1.8, 119, 180)] == ["48 ms", "1.8 s", "119.0 s", "3 min"]
    assert [bytes_words(n) for n in (0, 14_000, 14_000_000, 12_300_000_000)] == ["0 MB", "14 kB", "14 MB", "12.3 GB"]
