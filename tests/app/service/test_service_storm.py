"""Everything that people can do, at once and in any order: no reply is lost, none is left running, no block held."""

import random
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from chat_desk import ChatDesk, until
from fake_engine import FakeEngine
from paged_chat.engine.errors import PagedChatError
from paged_chat.engine.request import SamplingParams
from patience import PATIENCE_S

NUM_PEOPLE = 4
NUM_DEEDS = 120
REPLY = "A reply that is long enough to be stopped somewhere in its middle"


def one_person(service, seed, chats, deeds):
    """Does things at random; what may be refused is refused with an error of ours, and with no other."""
    chance = random.Random(seed)
    for _ in range(NUM_DEEDS):
        chat_id = chance.choice(chats)
        try:
            messages = list(service.tree(chat_id))
            message_id = chance.choice(messages).id if messages else 1
            deed = chance.choice(deeds)
            deed(service, chat_id, message_id, chance)
        except PagedChatError:
            pass


def send(service, chat_id, message_id, chance):
    service.send(chat_id, "Go", n=chance.choice((1, 1, 3)), parent_id=chance.choice((None, message_id)))


def watch_a_little(service, chat_id, message_id, chance):
    with service.watch(chat_id) as watcher:
        for _ in range(3):
            watcher.get(0.005)


def delete_and_restore(service, chat_id, message_id, chance):
    if chance.random() < 0.5:
        service.delete_message(chat_id, message_id)
        service.restore_message(chat_id, message_id)
    else:
        service.delete_chat(chat_id)
        service.restore_chat(chat_id)


DEEDS = (
    send,
    send,
    lambda service, chat_id, message_id, chance: service.retry(chat_id, message_id, n=chance.choice((1, 2))),
    lambda service, chat_id, message_id, chance: service.edit(chat_id, message_id, "Edited"),
    lambda service, chat_id, message_id, chance: service.continue_reply(chat_id, message_id),
    lambda service, chat_id, message_id, chance: service.stop(chat_id),
    lambda service, chat_id, message_id, chance: service.stop(chat_id, message_id),
    lambda service, chat_id, message_id, chance: service.pick(chat_id, message_id),
    lambda service, chat_id, message_id, chance: service.fork(chat_id, message_id),
    lambda service, chat_id, message_id, chance: service.plans.send(chat_id, "More"),
    watch_a_little,
    delete_and_restore,
)


def is_made_of_beginnings(text):
    """Of the reply: one for each time that it was continued."""
    return all(REPLY.startswith(f"A{part}") for part in text.split("A")[1:]) and text[:1] in ("", "A")


@pytest.mark.parametrize("seed", range(3))
def test_whatever_people_do_at_once_every_reply_ends_whole_and_nothing_is_held(tmp_path, monkeypatch, seed):
    fake = FakeEngine(max_num_seqs=8, num_blocks=256)
    fake.scripts.otherwise = REPLY
    desk = ChatDesk(tmp_path / "chats.db", fake)
    faults = []
    monkeypatch.setattr(threading, "excepthook", faults.append)
    try:
        sampling = SamplingParams(temperature=1.0, max_tokens=40)
        chats = [desk.service.create_chat(sampling=sampling, is_temporary=number == 2).id for number in range(3)]
        with ThreadPoolExecutor(NUM_PEOPLE) as people:
            seeds = range(seed * NUM_PEOPLE, (seed + 1) * NUM_PEOPLE)
            list(people.map(lambda own: one_person(desk.service, own, chats, DEEDS), seeds, timeout=PATIENCE_S * 3))
        until(lambda: not desk.service.running_chat_ids())
        for chat in desk.service.chats():
            for message in desk.service.tree(chat.id):
                assert message.status in ("done", "stopped"), message
                assert message.role == "user" or is_made_of_beginnings(message.text), message
        until(lambda: fake.models[0].snapshot().num_referenced == 0)
        fake.models[0].check_integrity()
        assert faults == []
    finally:
        desk.close()
