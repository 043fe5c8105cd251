"""Models that load, that fail to load, and that take another one's place."""

import pytest

from chat_desk import until, updates_of
from paged_chat.app.errors import EngineUnavailable, ModelInUse
from paged_chat.app.service.model_notice import ModelNotice
from paged_chat.engine.errors import ModelNotFound
from patience import PATIENCE_S

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
    with pytest.raises(ModelInUse, match="1 reply is being written: another model would end that"):
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
