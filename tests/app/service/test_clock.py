"""A clock that is set back by an hour or forward by a day while a service runs."""

import time
from datetime import UTC, datetime, timedelta

import pytest

from chat_desk import ChatDesk, until
from paged_chat.app.imported_chat import ImportedChat
from patience import PATIENCE_S

HOUR_S, DAY_S = 3600, 24 * 3600


class Clock:
    """The wall clock of this process, which a test sets; `time.monotonic` and `time.perf_counter` go on as they do."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._ahead_s = 0
        read_ns = time.time_ns
        monkeypatch.setattr(time, "time_ns", lambda: read_ns() + self._ahead_s * 10**9)
        monkeypatch.setattr(time, "time", lambda: read_ns() / 1e9 + self._ahead_s)

    def move(self, seconds: int) -> None:
        self._ahead_s += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def titles(desk: ChatDesk) -> list[str]:
    return [chat.title for chat in desk.service.chats()]


@pytest.mark.parametrize("jumps", [(-HOUR_S, -HOUR_S), (DAY_S, -DAY_S), (-DAY_S, DAY_S - HOUR_S)])
def test_chats_stand_in_the_order_in_which_they_were_used(desk, clock, jumps):
    first, second, third = (desk.service.create_chat(title=title) for title in ("first", "second", "third"))
    desk.ask(third, "What now?", "this", "that")
    clock.move(jumps[0])
    desk.ask(second, "What now?", "this", "that")
    assert titles(desk) == ["second", "third", "first"]
    desk.service.update_chat(second.id, is_pinned=True)
    clock.move(jumps[1])
    desk.ask(first, "What now?", "this", "that")
    assert titles(desk) == ["second", "first", "third"]
    desk.service.update_chat(second.id, is_pinned=False)
    assert titles(desk) == ["first", "second", "third"]
    assert desk.service.create_chat(title="fourth").title == titles(desk)[0]


@pytest.mark.parametrize("jump", [-HOUR_S, DAY_S])
def test_messages_stand_in_the_order_in_which_they_were_sent(desk, clock, jump):
    chat = desk.service.create_chat()
    desk.ask(chat, "What now?", "this")
    clock.move(jump)
    desk.ask(chat, "And then?", "that")
    assert desk.texts(chat) == ["What now?", "this", "And then?", "that"]
    moments = [message.created_at for message in desk.service.tree(chat.id)]
    assert moments == sorted(moments)


@pytest.mark.parametrize("jump", [-HOUR_S, DAY_S])
def test_a_clock_that_is_set_in_mid_reply_changes_no_figure_and_delays_no_draft(desk, clock, jump):
    desk.fake.enqueue("Slow and steady")
    desk.fake.hold()
    chat = desk.service.create_chat()
    [draft] = desk.service.send(chat.id, "Go").replies
    clock.move(jump)
    desk.let(chat, 4)
    clock.move(jump)
    desk.let(chat, 4)
    until(lambda: desk.stored(draft).text == "Slow and")
    clock.move(-jump)
    desk.fake.go()
    desk.finish(chat)
    cost = desk.stored(draft).cost
    assert 0 < cost.ttft_ms < PATIENCE_S * 1e3 < HOUR_S * 1e3
    assert cost.tokens_per_s > 1 / PATIENCE_S


def test_a_wait_is_as_long_as_it_was_said(desk, clock):
    chat = desk.service.create_chat()
    with desk.service.watch(chat.id) as watcher:
        while watcher.get(timeout=0.0) is not None:
            pass
        started = time.monotonic()
        clock.move(-HOUR_S)
        assert watcher.get(timeout=0.05) is None
        assert 0.05 <= time.monotonic() - started < PATIENCE_S


def test_an_imported_chat_of_times_to_come_stands_before_others_only_until_they_are_used(desk):
    mine = desk.service.create_chat(title="mine")
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    desk.service.import_chats([ImportedChat(title="theirs", messages=(), created_at=tomorrow, updated_at=tomorrow)])
    assert titles(desk) == ["theirs", "mine"]
    desk.ask(mine, "What now?", "this")
    assert titles(desk) == ["mine", "theirs"]
    assert desk.service.chat(mine.id).updated_at < tomorrow
