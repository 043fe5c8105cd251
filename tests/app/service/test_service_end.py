"""The end of a service: closed, or its process killed."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from chat_desk import ChatDesk, events_of, until, updates_of
from fake_engine import FakeEngine
from paged_chat.app.errors import EngineUnavailable
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
