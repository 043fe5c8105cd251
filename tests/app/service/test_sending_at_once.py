"""Many threads, a busy engine, a reply that still grows: sending waits for nothing and mixes nothing up."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from chat_desk import until
from paged_chat.app.errors import CannotContinue, ReplyRunning
from patience import PATIENCE_S


def test_nothing_waits_for_an_engine_that_is_busy_with_a_long_prompt(desk, service):
    chat, other = service.create_chat(), service.create_chat()
    [reply] = desk.ask(other, "Before", "Done")
    desk.fake.stall()
    turn = service.send(chat.id, "A very long prompt")
    until(lambda: len(desk.fake.models[0].submitted) >= 1)
    start = time.monotonic()
    service.send(other.id, "Another question")
    service.plans.send(other.id, "x", parent_id=reply.id)
    service.tree(chat.id), service.chats(), service.running(chat.id), service.search("long")
    service.stop(chat.id)
    service.ask_engine(lambda engine: engine.snapshot())
    service.delete_message(other.id, reply.id)
    service.delete_chat(other.id)
    assert time.monotonic() - start < PATIENCE_S / 4  # whatever waited for the engine would wait for four times that
    desk.fake.go()
    desk.finish(chat)
    assert desk.stored(turn.replies[0]).status == "stopped"


def test_every_thread_may_send(desk, service):
    chats = [service.create_chat() for _ in range(12)]
    barrier = threading.Barrier(4)

    def send(four):
        barrier.wait()
        for chat in four:
            service.send(chat.id, f"Go {chat.id}")

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(send, [chats[i::4] for i in range(4)]))
    for chat in chats:
        desk.finish(chat)
        [question, reply] = service.tree(chat.id)
        assert question.text == f"Go {chat.id}"
        assert reply.status == "done"


def test_two_sends_at_once_to_one_chat_never_make_two_replies_below_one_another(desk, service):
    desk.fake.hold()
    chat = service.create_chat()
    barrier = threading.Barrier(2)

    def send(text):
        barrier.wait()
        try:
            return service.send(chat.id, text)
        except ReplyRunning as error:
            return str(error)

    with ThreadPoolExecutor(2) as threads:
        outcomes = list(threads.map(send, ["one", "two"]))
    assert len([outcome for outcome in outcomes if isinstance(outcome, str)]) == 1
    assert len(service.tree(chat.id)) == 2
    desk.fake.go()
    desk.finish(chat)


def test_a_message_below_a_reply_that_still_grows_is_refused_with_what_to_do(desk, service):
    desk.fake.hold()
    chat = service.create_chat()
    [draft] = service.send(chat.id, "Go").replies
    with pytest.raises(ReplyRunning, match="wait for its end, or stop it"):
        service.send(chat.id, "More")
    with pytest.raises(ReplyRunning):
        service.fork(chat.id, draft.id)
    with pytest.raises(CannotContinue):
        service.continue_reply(chat.id, draft.id)
