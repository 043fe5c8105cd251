"""Replies that are stopped, one or several, and go on where they were cut."""

import pytest

from chat_desk import ChatDesk, until, updates_of
from fake_engine import FakeEngine
from paged_chat.app.chats import ReplyCost
from paged_chat.app.errors import CannotContinue
from paged_chat.app.service.reply_cost import continued
from paged_chat.engine.errors import PromptTooLong
from paged_chat.engine.request import SamplingParams


def test_stop_ends_a_reply_with_the_text_so_far(desk, service):
    desk.fake.enqueue("A very long answer")
    desk.fake.hold()
    chat = service.create_chat()
    [draft] = service.send(chat.id, "Go").replies
    desk.let(chat, 6)
    assert service.stop(chat.id) == 1
    desk.finish(chat)
    reply = desk.stored(draft)
    assert (reply.text, reply.status, reply.finish_reason) == ("A very", "stopped", "abort")
    assert reply.cost.num_generated_tokens == 6
    assert service.stop(chat.id) == 0
    assert desk.fake.models[0].snapshot().num_referenced == 0


def test_one_of_several_replies_is_stopped_and_the_others_go_on(desk, service):
    desk.fake.enqueue("First answer", "Second answer", "Third answer")
    desk.fake.hold()
    chat = service.create_chat()
    first, second, third = service.send(chat.id, "Go", n=3).replies
    desk.let(chat, 5)
    assert service.stop(chat.id, second.id) == 1
    until(lambda: {message.id for message in service.running(chat.id)} == {first.id, third.id})
    assert desk.stored(second).status == "stopped"
    desk.fake.go()
    desk.finish(chat)
    assert [desk.stored(reply).text for reply in (first, second, third)] == ["First answer", "Secon", "Third answer"]


def test_one_of_several_can_be_stopped_before_their_prompt_is_computed(desk, service):
    desk.fake.enqueue("First answer", "Second answer")
    desk.fake.hold()
    chat = service.create_chat()
    first, second = service.send(chat.id, "Go", n=2).replies
    until(lambda: desk.fake.models and desk.fake.models[0].submitted)
    service.stop(chat.id, first.id)
    desk.fake.go()
    desk.finish(chat)
    assert desk.stored(first).status == "stopped"
    assert len(desk.stored(first).text) < 3
    assert (desk.stored(second).text, desk.stored(second).status) == ("Second answer", "done")


def test_stopping_while_the_model_loads_leaves_an_empty_reply_that_can_be_continued(desk, service, tmp_path):
    fake = FakeEngine()
    fake.may_load.clear()
    other = ChatDesk(tmp_path / "other.db", fake)
    try:
        chat = other.service.create_chat()
        [draft] = other.service.send(chat.id, "Go").replies
        assert other.service.stop(chat.id) == 1
        other.finish(chat)
        assert (other.stored(draft).text, other.stored(draft).status) == ("", "stopped")
        fake.may_load.set()
        fake.enqueue("Here I am")
        other.service.continue_reply(chat.id, draft.id)
        other.finish(chat)
        assert other.stored(draft).text == "Here I am"
        assert [prompt for prompt, _, _ in fake.models[0].submitted] != []
        assert len(fake.models[0].submitted) == 1
    finally:
        other.close()


def test_each_of_several_chats_is_stopped(desk, service):
    desk.fake.hold()
    chats = [service.create_chat() for _ in range(3)]
    for chat in chats:
        service.send(chat.id, "Go")
    assert service.running_chat_ids() == {chat.id for chat in chats}
    assert [service.stop(chat.id) for chat in chats] == [1, 1, 1]
    for chat in chats:
        desk.finish(chat)
        assert [message.status for message in desk.store.tree(chat.id)] == ["done", "stopped"]


def test_continue_goes_on_in_the_same_message_and_adds_its_cost(desk, service):
    desk.fake.enqueue("Day one is for walking")
    desk.fake.hold()
    chat = service.create_chat()
    [draft] = service.send(chat.id, "Lisbon").replies
    desk.let(chat, 7)
    service.stop(chat.id)
    desk.finish(chat)
    stopped = desk.stored(draft)
    desk.fake.enqueue(" is for walking")
    desk.fake.go()
    reopened = service.continue_reply(chat.id, draft.id)
    assert (reopened.id, reopened.text, reopened.status) == (draft.id, "Day one", "draft")
    events = updates_of(desk.finish(chat))
    assert events[0].text.startswith("Day one")
    whole = desk.stored(draft)
    assert (whole.text, whole.status, whole.finish_reason) == ("Day one is for walking", "done", "stop")
    first, second = desk.fake.models[0].submitted
    assert second[0] == [*first[0], *stopped.token_ids]
    # The continuation found all of the prompt's 23 tokens and of the 7 that had been written: nothing is counted twice.
    cost = whole.cost
    assert (cost.num_computed_tokens, cost.num_cached_tokens, cost.num_generated_tokens) == (23, 0, 7 + 16)
    assert cost.ttft_ms == stopped.cost.ttft_ms
    assert len(service.tree(chat.id)) == 2


def test_a_reply_at_its_longest_length_is_continued(desk, service):
    chat = service.create_chat(sampling=SamplingParams(max_tokens=5))
    [cut] = desk.ask(chat, "Go", "Hello there")
    assert (cut.status, cut.finish_reason) == ("done", "length")
    desk.fake.enqueue("e")
    service.continue_reply(chat.id, cut.id)
    desk.finish(chat)
    assert desk.stored(cut).text.startswith(cut.text)
    assert desk.stored(cut).finish_reason == "stop"


def test_a_character_cut_in_two_is_whole_after_continuing(desk, service):
    desk.fake.enqueue("你好")
    desk.fake.hold()
    chat = service.create_chat()
    [draft] = service.send(chat.id, "Go").replies
    desk.let(chat, 4)  # three bytes are 你, the fourth begins 好
    service.stop(chat.id)
    desk.finish(chat)
    assert (desk.stored(draft).text, len(desk.stored(draft).token_ids)) == ("你", 4)
    desk.fake.enqueue("好")
    desk.fake.go()
    service.continue_reply(chat.id, draft.id)
    desk.finish(chat)
    assert desk.stored(draft).text == "你好"
    assert len(desk.stored(draft).token_ids) == 7


def test_a_reply_that_fills_the_window_stays_as_it_is(small):
    small.fake.enqueue("x" * 200)
    chat = small.service.create_chat()
    [draft] = small.service.send(chat.id, "Go").replies
    small.finish(chat)
    full = small.stored(draft)
    assert (full.status, full.finish_reason, len(full.text)) == ("done", "length", 128 - 19)
    with pytest.raises(PromptTooLong, match="no room to go on; ask for the rest in a new message"):
        small.service.continue_reply(chat.id, draft.id)
    assert small.stored(draft) == full


def test_a_complete_reply_can_not_be_continued(desk, service):
    chat = service.create_chat()
    [reply] = desk.ask(chat, "Go", "Done")
    with pytest.raises(CannotContinue, match="complete"):
        service.continue_reply(chat.id, reply.id)
    with pytest.raises(CannotContinue, match="only a reply"):
        service.continue_reply(chat.id, reply.parent_id)


def test_a_continuation_that_found_less_is_told_as_computed():
    before = ReplyCost(
        num_cached_tokens=212, num_computed_tokens=31, num_generated_tokens=40, ttft_ms=48.0, tokens_per_s=118.0
    )
    after = ReplyCost(
        num_cached_tokens=96, num_computed_tokens=187, num_generated_tokens=10, ttft_ms=300.0, tokens_per_s=120.0
    )
    assert continued(before, after) == ReplyCost(
        num_cached_tokens=96, num_computed_tokens=147, num_generated_tokens=50, ttft_ms=48.0, tokens_per_s=120.0
    )


@pytest.mark.parametrize("num_tokens", range(1, 9))
def test_stopping_at_the_very_end_gives_one_end_or_the_other_and_never_a_broken_one(desk, service, num_tokens):
    desk.fake.enqueue("Finish")
    desk.fake.hold()
    chat = service.create_chat()
    [draft] = service.send(chat.id, "Go").replies
    until(lambda: desk.fake.models and desk.fake.models[0].submitted)
    desk.fake.let(num_tokens)
    service.stop(chat.id)
    desk.finish(chat)
    reply = desk.stored(draft)
    assert reply.status in ("stopped", "done")
    assert (reply.status == "done") == (reply.text == "Finish" and reply.finish_reason == "stop")
    assert "Finish".startswith(reply.text)
    assert desk.fake.models[0].snapshot().num_referenced == 0


def test_the_reply_cost_is_exact_for_one_that_was_stopped_in_its_prompt(desk, service):
    desk.fake.hold()
    chat = service.create_chat()
    [draft] = service.send(chat.id, "Go").replies
    until(lambda: desk.fake.models and desk.fake.models[0].submitted)
    service.stop(chat.id)
    desk.finish(chat)
    assert desk.stored(draft).cost == ReplyCost(
        num_cached_tokens=0, num_computed_tokens=19, num_generated_tokens=0, ttft_ms=None, tokens_per_s=None
    )
