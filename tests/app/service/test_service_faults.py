"""What goes wrong: models that don't load, engines that break, full disks, processes that are killed."""

import logging
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from chat_desk import ChatDesk, events_of, next_update, until, updates_of
from fake_engine import PATIENCE_S, FakeEngine
from paged_chat.app.errors import EngineUnavailable, ReplyRunning
from paged_chat.app.service.chat_events import ChatChanged
from paged_chat.app.service.model_notice import ModelNotice
from paged_chat.app.store.store import Store
from paged_chat.engine.errors import ChatTemplateInvalid, ModelNotFound

PROCESS_PATIENCE_S = 90.0  # it imports torch
SUPPORT = Path(__file__).parents[2] / "support"


@pytest.fixture
def make_desk(tmp_path):
    made = []

    def make(**options):
        made.append(ChatDesk(tmp_path / "chats.db", FakeEngine(**options)))
        return made[-1]

    yield make
    for desk in made:
        desk.close()


@pytest.fixture
def desk(make_desk):
    return make_desk()


# Loading


def test_what_is_sent_while_the_model_loads_is_stored_and_answered_afterwards(desk, service):
    desk.fake.may_load.clear()
    service.switch_model("slow-7b")
    until(lambda: service.engine_status.progress is not None)
    chat = service.create_chat()
    desk.fake.enqueue("At last")
    service.send(chat.id, "Are you there?")
    plan = service.plans.send(chat.id, "More?")
    snapshot = service.ask_engine(lambda engine: engine.snapshot())
    assert (service.engine_status.phase, service.engine_status.model) == ("loading", "slow-7b")
    assert (service.engine_status.progress.done, service.engine_status.progress.total) == (1, 4)
    assert not plan.done()
    assert not snapshot.done()
    desk.fake.may_load.set()
    desk.finish(chat)
    assert desk.texts(chat) == ["Are you there?", "At last"]
    assert plan.result(PATIENCE_S).window == 4096
    assert snapshot.result(PATIENCE_S).num_blocks == 512
    assert service.engine_status.phase == "ready"


def test_a_failed_load_leaves_chats_to_be_read_and_refuses_to_send_with_the_reason(desk, service):
    chat = service.create_chat()
    [reply] = desk.ask(chat, "Lisbon", "Sunny")
    desk.fake.load_error = ModelNotFound("there is no model 'x': take another")
    with service.watch_app() as watcher:
        service.switch_model("x")
        until(lambda: service.engine_status.phase == "failed")
        statuses = [event for event in iter(lambda: watcher.get(0.2), None) if hasattr(event, "phase")]
    assert statuses[-1].error == "there is no model 'x': take another"
    for refused in (
        lambda: service.send(chat.id, "More"),
        lambda: service.edit(chat.id, reply.parent_id, "Porto"),
        lambda: service.retry(chat.id, reply.id),
        lambda: service.continue_reply(chat.id, reply.id),
        lambda: service.plans.send(chat.id, "More"),
        lambda: service.ask_engine(lambda engine: engine.snapshot()),
    ):
        with pytest.raises(EngineUnavailable, match="there is no model 'x'"):
            refused()
    assert desk.texts(chat) == ["Lisbon", "Sunny"]
    assert len(service.search("Sunny")) == 1
    # Another model loads, and all goes on.
    desk.fake.load_error = None
    service.switch_model("fake-1b")
    desk.ask(chat, "And Porto?", "Rainy")
    assert desk.texts(chat) == ["Lisbon", "Sunny", "And Porto?", "Rainy"]


def test_a_reply_that_waited_for_a_model_that_failed_says_why_and_can_be_retried(desk, service):
    desk.fake.may_load.clear()
    desk.fake.load_error = ModelNotFound("the file is damaged")
    service.switch_model("x")
    chat = service.create_chat()
    [draft] = service.send(chat.id, "Are you there?").replies
    desk.fake.may_load.set()
    desk.finish(chat)
    reply = desk.stored(draft)
    assert (reply.text, reply.status, reply.error) == ("", "failed", "the file is damaged")
    desk.fake.load_error = None
    service.switch_model("fake-1b")
    desk.fake.enqueue("Yes")
    service.retry(chat.id, reply.id)
    desk.finish(chat)
    assert desk.texts(chat) == ["Are you there?", "Yes"]


# Another model


def test_choosing_another_model_ends_the_loading_of_the_one_before(desk, service):
    until(lambda: service.engine_status.phase == "ready")
    desk.fake.may_load.clear()
    service.switch_model("huge-70b")
    until(lambda: service.engine_status.progress is not None)
    waiting = service.tokens.count("Lisbon")
    service.switch_model("small-1b")
    with pytest.raises(EngineUnavailable, match="another model was chosen while huge-70b was loading"):
        waiting.result(PATIENCE_S)
    desk.fake.may_load.set()
    until(lambda: service.engine_status.phase == "ready")
    assert service.engine_status.model == "small-1b"
    assert [model.model_name for model in desk.fake.models] == ["fake-1b", "small-1b"]


def test_the_model_is_not_changed_under_a_running_reply_unless_forced(desk, service):
    desk.fake.enqueue("A long reply")
    desk.fake.hold()
    chat = service.create_chat()
    [draft] = service.send(chat.id, "Go").replies
    desk.let(chat, 6)
    with pytest.raises(ReplyRunning, match="1 reply is being written"):
        service.switch_model("other-3b")
    service.switch_model("other-3b", force=True)
    desk.finish(chat)
    assert (desk.stored(draft).text, desk.stored(draft).status) == ("A long", "stopped")
    until(lambda: service.engine_status.phase == "ready")
    assert service.engine_status.model == "other-3b"
    assert [model.was_closed for model in desk.fake.models] == [True, False]


def test_replies_of_another_model_are_read_anew_and_chats_keep_what_they_name(desk, service):
    chat = service.create_chat(model="fake-1b")
    [first] = desk.ask(chat, "Lisbon", "Sunny")
    service.switch_model("other-3b")
    desk.fake.go()
    [second] = desk.ask(chat, "And Porto?", "Rainy")
    assert [first.model, second.model] == ["fake-1b", "other-3b"]
    assert service.chat(chat.id).model == "fake-1b"
    assert desk.fake.models[1].prompts() == ["<s>user:Lisbon</s>assistant:Sunny</s>user:And Porto?</s>assistant:"]
    assert second.cost.num_cached_tokens == 0


def test_a_chat_whose_model_is_not_loaded_is_answered_by_the_other_and_says_so(desk, service):
    chat = service.create_chat(model="other-3b")
    notice = ModelNotice(named="other-3b", answering="fake-1b")
    assert service.model_notice(chat.id) == notice
    assert service.plans.send(chat.id, "Hello?").result(PATIENCE_S).model_notice == notice
    desk.fake.enqueue("Hi")
    service.send(chat.id, "Hello?")
    events = desk.finish(chat)
    assert {update.plan.model_notice for update in updates_of(events) if update.plan} == {notice}
    service.switch_model(notice.named)
    assert service.model_notice(chat.id) is None
    [reply] = desk.ask(chat, "And now?", "Me")
    assert (reply.model, service.plans.send(chat.id, "x").result(PATIENCE_S).model_notice) == ("other-3b", None)
    assert service.model_notice(service.create_chat().id) is None


# Faults in the middle of a reply


def test_a_fault_keeps_the_text_so_far_with_the_reason_and_a_retry_works(desk, service, caplog):
    caplog.set_level(logging.CRITICAL)
    chat = service.create_chat()
    desk.fake.enqueue_failure("Half a rep", "the device is gone")
    [draft] = service.send(chat.id, "Go").replies
    events = desk.finish(chat)
    reply = desk.stored(draft)
    assert (reply.text, reply.status, reply.finish_reason) == ("Half a rep", "failed", "error")
    assert "the device is gone" in reply.error
    assert updates_of(events)[-1].error == reply.error
    assert service.engine_status.phase == "ready"
    desk.fake.enqueue("A whole reply")
    service.retry(chat.id, reply.id)
    desk.finish(chat)
    assert desk.texts(chat) == ["Go", "A whole reply"]


def test_a_failed_reply_can_be_continued_too(desk, service, caplog):
    caplog.set_level(logging.CRITICAL)
    chat = service.create_chat()
    desk.fake.enqueue_failure("Half", "the device is gone")
    [draft] = service.send(chat.id, "Go").replies
    desk.finish(chat)
    desk.fake.enqueue(" and whole")
    service.continue_reply(chat.id, draft.id)
    desk.finish(chat)
    reply = desk.stored(draft)
    assert (reply.text, reply.status, reply.error) == ("Half and whole", "done", None)


def test_an_engine_that_breaks_fails_its_replies_and_is_loaded_again_on_request(desk, service, caplog):
    caplog.set_level(logging.CRITICAL)
    desk.fake.enqueue("A reply in the middle")
    desk.fake.hold()
    chat = service.create_chat()
    [draft] = service.send(chat.id, "Go").replies
    desk.let(chat, 7)
    desk.fake.crash("block 5 counts 2 holders and has 1")
    desk.finish(chat)
    assert (desk.stored(draft).text, desk.stored(draft).status) == ("A reply", "failed")
    until(lambda: service.engine_status.phase == "failed")
    assert "block 5 counts 2 holders" in service.engine_status.error
    with pytest.raises(EngineUnavailable, match="block 5"):
        service.send(chat.id, "More")
    desk.fake.go()
    service.switch_model("fake-1b")
    desk.ask(chat, "Again", "Here I am")
    assert desk.texts(chat)[-1] == "Here I am"


def test_a_template_that_refuses_the_chat_fails_the_reply_with_its_words(desk, service):
    chat = service.create_chat()
    desk.ask(chat, "Lisbon", "Sunny")
    encode_chat = desk.fake.models[0].encode_chat

    def refuse_long(messages):
        if len(messages) > 1:
            raise ChatTemplateInvalid("the model's chat template refuses these messages: one turn only")
        return encode_chat(messages)

    desk.fake.models[0].encode_chat = refuse_long
    [draft] = service.send(chat.id, "And Porto?").replies
    desk.finish(chat)
    reply = desk.stored(draft)
    assert (reply.text, reply.status) == ("", "failed")
    assert reply.error == "the model's chat template refuses these messages: one turn only"


def test_a_model_without_a_chat_template_refuses_before_anything_is_stored(desk, service):
    until(lambda: service.engine_status.phase == "ready")

    def refuse(messages):
        raise ChatTemplateInvalid("this model comes without a chat template")

    desk.fake.models[0].encode_chat = refuse
    chat = service.create_chat()
    with pytest.raises(ChatTemplateInvalid, match="without a chat template"):
        service.send(chat.id, "Go")
    assert len(service.tree(chat.id)) == 0


# The disk


def fill(store: Store) -> None:
    """From now on the database has no page to grow by; what SQLite says then is what it says of a full disk."""
    store._write(lambda db: db.execute(f"PRAGMA max_page_count = {db.execute('PRAGMA page_count').fetchone()[0]}"))


def make_room(store: Store) -> None:
    store._write(lambda db: db.execute("PRAGMA max_page_count = 1073741823"))


def test_a_disk_that_is_full_stops_no_reply_and_what_came_is_saved_once_there_is_room(desk, service):
    text = "All that was said while the disk was full. " * 40
    desk.fake.enqueue(text)
    desk.fake.hold()
    chat = service.create_chat()
    [draft] = service.send(chat.id, "Go").replies
    fill(desk.store)
    desk.fake.go()
    with service.watch(chat.id) as watcher:
        while not (update := next_update(watcher)).has_ended or update.save_error is None:
            pass
        assert (update.text, update.status) == (text, "done")
        assert "full" in update.save_error
        # It is shown whole, though the database has a draft.
        assert desk.texts(chat) == ["Go", text]
        assert desk.stored(draft).status == "draft"
        assert service.running(chat.id) == ()
        make_room(desk.store)
        while (update := next_update(watcher)).save_error is not None:
            pass
    until(lambda: desk.stored(draft).status == "done")
    assert desk.stored(draft).text == text


def test_drafts_are_on_the_disk_within_a_second(desk, service):
    desk.fake.enqueue("Slow and steady")
    desk.fake.hold()
    chat = service.create_chat()
    [draft] = service.send(chat.id, "Go").replies
    for num_tokens, text in ((4, "Slow"), (4, "Slow and")):
        desk.let(chat, num_tokens)
        start = time.monotonic()
        until(lambda text=text: desk.stored(draft).text == text)
        assert time.monotonic() - start < 1.0
        assert len(desk.stored(draft).token_ids) == len(text)
    assert desk.stored(draft).status == "draft"


def test_a_reply_that_another_process_has_taken_over_is_given_up(desk, service, caplog):
    caplog.set_level(logging.CRITICAL)
    desk.fake.enqueue("Two would write this")
    desk.fake.hold()
    chat = service.create_chat()
    [draft] = service.send(chat.id, "Go").replies
    desk.let(chat, 3)
    desk.store._write(lambda db: db.execute("UPDATE messages SET writer = 'another' WHERE id = ?", (draft.id,)))
    desk.fake.let(1)
    until(lambda: service.running(chat.id) == ())
    desk.fake.go()
    until(lambda: desk.fake.models[0].snapshot().num_referenced == 0)
    assert desk.stored(draft).status == "draft"


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
    assert time.monotonic() - start < 2.0
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
    assert time.monotonic() - start < 2.5
    reply = desk.stored(draft)
    assert reply.status == "stopped"
    if phase == "loading":
        assert (reply.text, reply.cost) == ("", None)
        with pytest.raises(EngineUnavailable, match="closed"):
            waiting.result(PATIENCE_S)
    else:
        # The engine hasn't said what it took; what was seen from here is kept.
        assert (reply.text, reply.cost.num_generated_tokens, reply.cost.num_computed_tokens) == ("A reply", 7, 19)


def test_closing_leaves_no_thread_of_ours(make_desk):
    before = set(threading.enumerate())
    desk = make_desk()
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
            assert time.monotonic() - started < PROCESS_PATIENCE_S
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
