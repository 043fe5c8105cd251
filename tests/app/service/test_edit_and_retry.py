"""Edits, retries and forks: siblings and chats of their own, beside what was there."""

import pytest

from paged_chat.app.errors import MessageNotFound
from paged_chat.engine.errors import InvalidParameter
from paged_chat.engine.request import SamplingParams


def test_picking_a_sibling_shows_its_path_and_the_next_turn_goes_on_from_it(desk, service):
    chat = service.create_chat()
    ann, bob = desk.ask(chat, "A name?", "Ann", "Bob")
    service.pick(chat.id, bob.id)
    desk.ask(chat, "Why?", "Short")
    assert desk.texts(chat) == ["A name?", "Bob", "Why?", "Short"]
    service.pick(chat.id, ann.id)
    assert desk.texts(chat) == ["A name?", "Ann"]
    service.pick(chat.id, bob.id)
    assert desk.texts(chat) == ["A name?", "Bob", "Why?", "Short"]
    with pytest.raises(MessageNotFound):
        service.pick(chat.id, 999)


# Edit, retry, fork


def test_an_edit_is_a_sibling_and_the_old_branch_stays(desk, service):
    chat = service.create_chat()
    desk.ask(chat, "Lisbon", "Sunny")
    [old] = desk.ask(chat, "Three days", "Too few")
    desk.fake.enqueue("Better")
    edited = service.edit(chat.id, old.parent_id, "Five days")
    desk.finish(chat)
    assert desk.texts(chat) == ["Lisbon", "Sunny", "Five days", "Better"]
    tree = service.tree(chat.id)
    assert [message.text for message in tree.siblings(edited.user_message.id)] == ["Three days", "Five days"]
    assert [message.text for message in tree.path(old.id)] == ["Lisbon", "Sunny", "Three days", "Too few"]


def test_the_first_message_can_be_edited_too(desk, service):
    chat = service.create_chat()
    [reply] = desk.ask(chat, "Lisbon", "Sunny")
    service.edit(chat.id, reply.parent_id, "Porto")
    desk.finish(chat)
    assert desk.texts(chat)[0] == "Porto"
    assert [message.text for message in service.tree(chat.id).children(None)] == ["Lisbon", "Porto"]


def test_a_reply_can_not_be_edited(desk, service):
    chat = service.create_chat()
    [reply] = desk.ask(chat, "Lisbon", "Sunny")
    with pytest.raises(InvalidParameter, match="retry a reply"):
        service.edit(chat.id, reply.id, "Rainy")


def test_a_retry_is_another_reply_to_the_same_message_with_other_numbers(desk, service):
    chat = service.create_chat(sampling=SamplingParams(temperature=1.0, seed=7))
    [first] = desk.ask(chat, "A name?", "Ann")
    desk.fake.enqueue("Bob")
    turn = service.retry(chat.id, first.id)
    assert turn.user_message is None
    desk.finish(chat)
    desk.fake.enqueue("Cleo", "Dan")
    service.retry(chat.id, first.parent_id, n=2)
    desk.finish(chat)
    replies = service.tree(chat.id).siblings(first.id)
    assert [(reply.text, reply.sampling.seed) for reply in replies] == [
        ("Ann", 7),
        ("Bob", 8),
        ("Cleo", 9),
        ("Dan", 10),
    ]
    assert desk.texts(chat) == ["A name?", "Cleo"]
    # A prompt sent twice is found but for its last token.
    assert desk.stored(turn.replies[0]).cost.num_computed_tokens == 1


def test_without_a_seed_every_reply_draws_one_and_keeps_it(desk, service):
    chat = service.create_chat(sampling=SamplingParams(temperature=1.0))
    [first] = desk.ask(chat, "A name?", "Ann")
    retried = service.retry(chat.id, first.id).replies[0]
    desk.finish(chat)
    seeds = [first.sampling.seed, desk.stored(retried).sampling.seed]
    assert len(set(seeds)) == 2
    assert [params.seed for _, params, _ in desk.fake.models[0].submitted] == seeds


def test_a_fork_is_a_chat_of_its_own_that_begins_the_same(desk, service):
    chat = service.create_chat()
    [first] = desk.ask(chat, "Lisbon", "Sunny")
    desk.ask(chat, "And Porto?", "Rainy")
    forked = service.fork(chat.id, first.id)
    [reply] = desk.ask(forked, "And Faro?", "Windy")
    assert desk.texts(forked) == ["Lisbon", "Sunny", "And Faro?", "Windy"]
    assert desk.texts(chat) == ["Lisbon", "Sunny", "And Porto?", "Rainy"]
    # Its ids came along, so what both have in common isn't computed again.
    common = "<s>user:Lisbon</s>assistant:Sunny</s>user:And "
    assert reply.cost.num_cached_tokens == 3 + len(common) - len("<s></s></s>")


def test_a_retry_while_the_first_reply_streams_runs_beside_it(desk, service):
    desk.fake.enqueue("The first reply")
    desk.fake.hold()
    chat = service.create_chat()
    [first] = service.send(chat.id, "Go").replies
    desk.let(chat, 4)
    desk.fake.enqueue("The second reply")
    [second] = service.retry(chat.id, first.id).replies
    assert len(service.running(chat.id)) == 2
    desk.fake.go()
    desk.finish(chat)
    assert [desk.stored(first).text, desk.stored(second).text] == ["The first reply", "The second reply"]
    assert desk.texts(chat) == ["Go", "The second reply"]
