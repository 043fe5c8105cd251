"""Chats deleted, brought back, kept in memory alone, and seen by their owner; presets and tags."""

import pytest

from chat_desk import until
from paged_chat.app.errors import ChatNotFound, MessageNotFound, ReplyRunning
from paged_chat.app.service.chat_events import ChatChanged
from paged_chat.engine.request import SamplingParams


def test_a_deleted_chat_stops_and_comes_back_with_what_there_was(desk, service):
    desk.fake.enqueue("A long reply that is cut")
    desk.fake.hold()
    chat = service.create_chat()
    [draft] = service.send(chat.id, "Go").replies
    with service.watch(chat.id) as watcher:
        desk.let(chat, 6)
        service.delete_chat(chat.id)
        assert ChatChanged(chat.id, is_deleted=True) in list(iter(lambda: watcher.get(0.2), None))
    until(lambda: not service.running_chat_ids())
    with pytest.raises(ChatNotFound):
        service.tree(chat.id)
    assert service.chats() == []
    service.restore_chat(chat.id)
    until(lambda: desk.stored(draft).status == "stopped")
    assert desk.texts(chat) == ["Go", "A long"]


def test_a_deleted_message_takes_its_running_reply_with_it_and_both_come_back(desk, service):
    chat = service.create_chat()
    desk.ask(chat, "Lisbon", "Sunny")
    desk.fake.enqueue("A long reply that is cut")
    desk.fake.hold()
    turn = service.send(chat.id, "Porto")
    desk.let(chat, 6)
    service.delete_message(chat.id, turn.user_message.id)
    until(lambda: service.running(chat.id) == ())
    assert desk.texts(chat) == ["Lisbon", "Sunny"]
    service.restore_message(chat.id, turn.user_message.id)
    until(lambda: desk.stored(turn.replies[0]).status == "stopped")
    assert [message.text for message in service.tree(chat.id)] == ["Lisbon", "Sunny", "Porto", "A long"]
    with pytest.raises(MessageNotFound):
        service.delete_message(chat.id, 999)


def test_a_temporary_chat_is_kept_with_its_branches_and_still_found_in_the_cache(desk, service):
    chat = service.create_chat(is_temporary=True, system_prompt="Be brief")
    desk.fake.enqueue("Day one")
    service.send(chat.id, "Lisbon")
    desk.finish(chat)
    desk.fake.enqueue("Day two")
    service.retry(chat.id, service.chat(chat.id).active_leaf_id)
    desk.finish(chat)
    kept = service.keep_chat(chat.id)
    assert (kept.title, kept.is_temporary, kept.system_prompt) == ("Lisbon", False, "Be brief")
    assert [message.text for message in service.tree(kept.id)] == ["Lisbon", "Day one", "Day two"]
    assert desk.texts(kept) == ["Lisbon", "Day two"]
    assert [each.id for each in service.chats()] == [kept.id] == [each.id for each in desk.store.chats()]
    with pytest.raises(ChatNotFound):
        service.chat(chat.id)
    [third] = desk.ask(kept, "And then?", "Day three")
    last = service.tree(kept.id)[kept.active_leaf_id]
    total = sum((last.cost.num_cached_tokens, last.cost.num_computed_tokens, len(last.token_ids)))
    assert third.cost.num_cached_tokens == total - 1
    assert service.keep_chat(kept.id).id == kept.id, "it is stored already"


def test_a_temporary_chat_in_which_a_reply_is_written_is_kept_at_its_end(desk, service):
    desk.fake.hold()
    chat = service.create_chat(is_temporary=True)
    service.send(chat.id, "Lisbon")
    with pytest.raises(ReplyRunning, match="then keep it"):
        service.keep_chat(chat.id)
    desk.fake.go()
    desk.finish(chat)
    assert not service.keep_chat(chat.id).is_temporary


def test_a_temporary_chat_answers_like_any_other_and_is_nowhere_on_the_disk(desk, service):
    chat = service.create_chat(is_temporary=True)
    stored = service.create_chat()
    assert chat.is_temporary
    desk.fake.enqueue("Secret answer")
    turn = service.send(chat.id, "Secret question")
    list(service.watch(chat.id, until_idle=True))
    until(lambda: service.running(chat.id) == ())
    assert desk.texts(chat) == ["Secret question", "Secret answer"]
    forked = service.fork(chat.id, turn.replies[0].id)
    assert forked.is_temporary
    assert [found.id for found in service.chats()] == [forked.id, chat.id, stored.id]
    assert service.search("Secret") == []
    assert desk.store.chats() == [stored]
    files = list(desk.path.parent.iterdir())
    assert desk.path in files
    assert [path.name for path in files if b"Secret" in path.read_bytes()] == []


def test_somebody_elses_chat_is_not_found(service):
    chat = service.create_chat(user="ann")
    assert service.chat(chat.id, user="ann") == chat
    with pytest.raises(ChatNotFound):
        service.chat(chat.id, user="bob")


def test_presets_and_tags_are_kept(service):
    service.save_system_prompt("Pirate", "Talk like a pirate")
    service.save_sampling_preset("Hot", SamplingParams(temperature=1.5))
    service.create_chat(tags=("travel", "food"))
    assert service.system_prompts() == {"Pirate": "Talk like a pirate"}
    assert service.sampling_presets() == {"Hot": SamplingParams(temperature=1.5)}
    assert service.tags() == ["food", "travel"]
    service.delete_system_prompt("Pirate")
    service.delete_sampling_preset("Hot")
    assert (service.system_prompts(), service.sampling_presets()) == ({}, {})
