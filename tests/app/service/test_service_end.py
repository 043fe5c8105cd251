"""The end of a service: closed, or its process killed."""

import logging
import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from chat_desk import ChatDesk, events_of, until, updates_of
from fake_engine import FakeEngine
from paged_chat.app.errors import EngineUnavailable
from paged_chat.app.service import reply_desk
from paged_chat.app.service.chat_events import ChatChanged
from paged_chat.app.store.store import Store
from patience import PATIENCE_S

SUPPORT = Path(__file__).parents[2] / "support"

# The end


def test_closing_stops_what_runs_and_saves_it_with_what_it_cost(desk, service):
    desk.fake.enqueue("A reply that is cut")
    desk.fake.hold()
    chat = service.create_chat()
    [draft] = service.send(chat.id, "Go").replies
    desk.let(chat, 7)
    watcher = service.watch(chat.id)
    start = time.monotonic()
    service.close()
    assert time.monotonic() - start < PATIENCE_S / 4
    reply = desk.stored(draft)
    assert (reply.text, reply.status, reply.cost.num_generated_tokens) == ("A reply", "stopped", 7)
    assert updates_of(events_of(watcher))[-1].status == "stopped"
    service.close()
    with pytest.raises(EngineUnavailable, match="closed"):
        service.send(chat.id, "More")
    with service.watch(chat.id) as late:
        assert list(late) == [ChatChanged(chat.id)]


@pytest.mark.parametrize("phase", ["loading", "stalled"])
def test_closing_waits_neither_for_a_model_that_loads_nor_for_a_step_that_takes_long(desk, service, phase):
    if phase == "loading":
        desk.fake.may_load.clear()
        service.switch_model("slow-7b")
        chat = service.create_chat()
        [draft] = service.send(chat.id, "Go").replies
        waiting = service.plans.send(chat.id, "More")
    else:
        desk.fake.enqueue("A reply that is cut")
        desk.fake.hold()
        chat = service.create_chat()
        [draft] = service.send(chat.id, "Go").replies
        desk.let(chat, 7)
        desk.fake.stall()
        waiting = None
    start = time.monotonic()
    service.close()
    assert time.monotonic() - start < PATIENCE_S / 4
    reply = desk.stored(draft)
    assert reply.status == "stopped"
    if phase == "loading":
        assert (reply.text, reply.cost) == ("", None)
        with pytest.raises(EngineUnavailable, match="closed"):
            waiting.result(PATIENCE_S)
    else:
        # The engine hasn't said what it took; what was seen from here is kept.
        assert (reply.text, reply.cost.num_generated_tokens, reply.cost.num_computed_tokens) == ("A reply", 7, 19)


def test_closing_leaves_no_thread_of_ours(tmp_path):
    before = set(threading.enumerate())
    desk = ChatDesk(tmp_path / "chats.db", FakeEngine())
    chat = desk.service.create_chat()
    desk.ask(chat, "Go", "Done")
    desk.service.watch(chat.id).close()
    desk.close()
    until(lambda: not [thread for thread in set(threading.enumerate()) - before if thread.is_alive()])


def test_closing_waits_for_another_program_that_holds_the_database(desk, service, caplog):
    desk.store._write(lambda db: db.execute("PRAGMA busy_timeout = 20"))  # instead of 10 s
    desk.fake.enqueue("A reply that is cut")
    desk.fake.hold()
    chat = service.create_chat()
    [draft] = service.send(chat.id, "Go").replies
    with closing(sqlite3.connect(desk.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        desk.let(chat, 7)
        ending = threading.Thread(target=service.close)
        ending.start()
        until(lambda: "another program may hold them: waiting up to 40 s to save the replies" in caplog.text)
        assert ending.is_alive()
        other.execute("ROLLBACK")
        ending.join(PATIENCE_S)
    reply = desk.stored(draft)
    assert (reply.text, reply.status, reply.cost.num_generated_tokens) == ("A reply", "stopped", 7)


def test_closing_does_not_wait_for_ever(desk, service, caplog, monkeypatch):
    monkeypatch.setattr(reply_desk, "SAVE_S", 0.1)
    desk.store._write(lambda db: db.execute("PRAGMA busy_timeout = 20"))
    desk.fake.enqueue("A reply that is cut")
    desk.fake.hold()
    chat = service.create_chat()
    [draft] = service.send(chat.id, "Go").replies
    desk.let(chat, 7)
    until(lambda: desk.stored(draft).text == "A reply")
    with closing(sqlite3.connect(desk.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        service.close()
        assert f"reply {draft.id} of chat {chat.id} isn't saved whole" in caplog.text
        other.execute("ROLLBACK")
    with Store(desk.path) as another:
        assert another.message(draft.id).text == "A reply"


def test_a_reply_that_ends_after_it_was_given_up_is_not_kept(desk, service, caplog):
    """The engine says so a moment after its chat is gone: nothing may wait for what can't be stored."""
    caplog.set_level(logging.CRITICAL)
    chat = service.create_chat()
    desk.fake.hold()
    [draft] = service.send(chat.id, "Go").replies
    [reply] = service._desk.replies(chat.id)
    with closing(sqlite3.connect(desk.path)) as other, other:
        other.execute("DELETE FROM messages WHERE id = ?", (draft.id,))
    desk.fake.let(1)
    until(lambda: service.running(chat.id) == ())
    service._desk._saver.finish(reply)
    assert not service._desk._saver._has_work()  # it would look for it without end


# C3: SIGKILL


WRITER = """
    import sys
    sys.path.insert(0, sys.argv[2])
    from pathlib import Path
    from chat_desk import ChatDesk
    from fake_engine import FakeEngine

    desk = ChatDesk(Path(sys.argv[1]), FakeEngine())
    chat = desk.service.create_chat()
    desk.ask(chat, "Lisbon", "Sunny")
    desk.fake.enqueue("A story without an end. " * 1000)
    desk.fake.pace.pause_s = 0.005
    desk.service.send(chat.id, "Tell me a story")
    for event in desk.service.watch(chat.id):
        print(getattr(event, "num_generated_tokens", 0), flush=True)
"""


def test_c3_after_sigkill_the_message_and_the_draft_are_there_and_go_on(tmp_path):
    path = tmp_path / "chats.db"
    writer = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(WRITER), str(path), str(SUPPORT)], stdout=subprocess.PIPE, text=True
    )
    try:
        started = time.monotonic()
        while int(writer.stdout.readline()) < 150:
            assert time.monotonic() - started < PATIENCE_S
    finally:
        os.kill(writer.pid, signal.SIGKILL)
        writer.wait()
    desk = ChatDesk(path, FakeEngine())
    try:
        [chat] = desk.service.chats()
        assert desk.texts(chat)[:3] == ["Lisbon", "Sunny", "Tell me a story"]
        reply = desk.store.tree(chat.id)[chat.active_leaf_id]
        story = "A story without an end. " * 1000
        assert reply.status == "stopped"
        # Nothing that came more than a second before the end is lost; a token took 5 ms or more.
        assert 0 < len(reply.text) <= len(reply.token_ids)
        assert story.startswith(reply.text)
        desk.fake.enqueue("The end.")
        desk.service.continue_reply(chat.id, reply.id)
        desk.finish(chat)
        whole = desk.stored(reply)
        assert (whole.text, whole.status) == (reply.text + "The end.", "done")
        # The ids before it went along, so the prompt is the one that the killed process had sent, and its reply.
        [(prompt, _, _)] = desk.fake.models[0].submitted
        assert tuple(prompt[-len(reply.token_ids) :]) == reply.token_ids
    finally:
        desk.close()


def test_a_draft_of_a_living_process_is_left_alone(desk, service):
    desk.fake.hold()
    chat = service.create_chat()
    [draft] = service.send(chat.id, "Go").replies
    with Store(desk.path) as another:
        assert another.stop_orphaned_drafts() == 0
    assert desk.stored(draft).status == "draft"
