"""Why each turn of a chat found no more in the cache: asked while it is written, later, and by whom."""

import pytest

from chat_desk import MODEL, ChatDesk, until, updates_of
from fake_engine import FakeEngine
from paged_chat.app.errors import MessageNotFound
from paged_chat.app.store.store import Store


def test_each_turn_of_a_chat_can_be_asked_why(desk, service):
    chat = service.create_chat(system_prompt="Be kind.")
    [first] = desk.ask(chat, "Lisbon", "Sunny")
    [second] = desk.ask(chat, "Porto", "Rainy")
    service.update_chat(chat.id, system_prompt="Be rude.")
    [third] = desk.ask(chat, "Faro", "Windy")
    again = desk.ask(chat, "Evora", "Warm", "Hot")
    causes = [service.miss_reason(chat.id, reply.id).cause for reply in (first, second, third, *again)]
    assert causes == ["first message", "new text", "system prompt edited", "new text", "computed beside"]
    edited = service.miss_reason(chat.id, third.id)
    assert (edited.before[-3:], edited.text[:4], edited.cached_text) == ("Be ", "rude", "k")
    assert edited.token_index == third.cost.num_cached_tokens
    assert edited.num_prompt_tokens == third.cost.num_cached_tokens + third.cost.num_computed_tokens
    assert service.miss_reason(chat.id, third.parent_id) is None
    with pytest.raises(MessageNotFound):
        service.miss_reason(chat.id, 999)
    # In the fork too, and after the program's end.
    fork = service.fork(chat.id, third.id)
    [*_, copied] = service.tree(fork.id)
    assert service.miss_reason(fork.id, copied.id) == edited
    with Store(desk.path) as store:
        assert store.miss_reason(third.id) == edited


def test_why_is_known_while_the_reply_is_being_written(desk, service):
    chat = service.create_chat()
    desk.fake.hold()
    desk.fake.enqueue("Sunny")
    [reply] = service.send(chat.id, "Lisbon").replies
    update = desk.let(chat, 1)
    assert update.miss.cause == "first message"
    assert service.miss_reason(chat.id, reply.id) == update.miss
    desk.fake.go()
    assert updates_of(desk.finish(chat))[-1].miss == update.miss


def test_what_another_person_has_sent_isnt_told(desk, service):
    ann, bob = service.create_chat(user="ann"), service.create_chat(user="bob")
    desk.ask(ann, "My secret plan", "I see")
    [same] = desk.ask(bob, "My secret plan", "I see")
    [other] = desk.ask(service.create_chat(user="eve"), "The weather", "Fine")
    told = service.miss_reason(bob.id, same.id)
    assert (told.cause, told.is_fault, told.num_cached_tokens) == ("other salt", False, 0)
    assert service.miss_reason(other.chat_id, other.id).cause == "other salt"


def test_a_chat_from_before_the_model_was_loaded_begins_with_an_empty_cache(desk, service):
    chat = service.create_chat()
    desk.ask(chat, "Lisbon", "Sunny")
    service.switch_model("another")
    until(lambda: service.engine_status.phase == "ready")
    [reply] = desk.ask(chat, "Porto", "Rainy")
    told = service.miss_reason(chat.id, reply.id)
    assert (told.cause, told.was_read_by, told.num_cached_tokens) == ("other model", MODEL, 0)
    [reply] = desk.ask(chat, "Faro", "Windy")
    assert service.miss_reason(chat.id, reply.id).cause == "new text"
    service.switch_model("another")
    until(lambda: service.engine_status.phase == "ready")
    [reply] = desk.ask(chat, "Evora", "Hot")
    assert service.miss_reason(chat.id, reply.id).cause == "loaded since"


def test_a_chat_whose_blocks_were_needed_says_so(tmp_path):
    desk = ChatDesk(tmp_path / "tight.db", FakeEngine(num_blocks=16))
    try:
        first, second = desk.service.create_chat(), desk.service.create_chat()
        [before] = desk.ask(first, "a" * 100, "Sunny")
        desk.ask(second, "b" * 190, "Rainy")
        [reply] = desk.ask(first, "c", "Windy")
        told = desk.service.miss_reason(first.id, reply.id)
        assert (told.cause, told.is_fault) == ("evicted", True)
        # All of the first turn but its last token, which nobody has read, was there once; what begins the chats alike
        # still is.
        num_read = before.cost.num_computed_tokens + before.cost.num_generated_tokens - 1
        assert told.num_cached_tokens + told.num_evicted_tokens == num_read
        assert told.num_cached_tokens == 16
    finally:
        desk.close()
