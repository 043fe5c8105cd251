"""What goes wrong in the middle of a reply: engines that break, templates that refuse, full disks."""

import logging
import sqlite3
from contextlib import closing

import pytest

from chat_desk import next_update, until, updates_of
from paged_chat.app.errors import EngineUnavailable, StoreBusy
from paged_chat.app.store.store import Store
from paged_chat.engine.errors import ChatTemplateInvalid

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


def test_drafts_are_on_the_disk_while_they_grow(desk, service):
    desk.fake.enqueue("Slow and steady")
    desk.fake.hold()
    chat = service.create_chat()
    [draft] = service.send(chat.id, "Go").replies
    for num_tokens, text in ((4, "Slow"), (4, "Slow and")):
        desk.let(chat, num_tokens)
        until(lambda text=text: desk.stored(draft).text == text)
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


# Another program that has the database


def test_a_database_that_another_program_holds_stops_no_reply_and_all_is_saved_afterwards(desk, service):
    desk.store._write(lambda db: db.execute("PRAGMA busy_timeout = 20"))  # instead of 10 s, three times over
    desk.fake.enqueue("All that was said while the database was locked.")
    desk.fake.hold()
    chat = service.create_chat()
    [draft] = service.send(chat.id, "Go").replies
    with closing(sqlite3.connect(desk.path, isolation_level=None)) as other, service.watch(chat.id) as watcher:
        other.execute("BEGIN IMMEDIATE")
        desk.fake.go()
        while not (update := next_update(watcher)).has_ended or update.save_error is None:
            pass
        assert "another program has been writing to" in update.save_error
        assert desk.texts(chat) == ["Go", "All that was said while the database was locked."]
        # What a person sends meanwhile is refused with nothing stored, so a screen keeps it in its prompt.
        with pytest.raises(StoreBusy):
            service.send(chat.id, "And?")
        assert len(service.tree(chat.id)) == 2
        other.execute("ROLLBACK")
        while (update := next_update(watcher)).save_error is not None:
            pass
    until(lambda: desk.stored(draft).status == "done")
    assert desk.stored(draft).text == "All that was said while the database was locked."
