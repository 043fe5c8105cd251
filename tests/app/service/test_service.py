"""Sending, watching, stopping, going on: what a person does with a chat, and what is then on the disk."""

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from chat_desk import MODEL, ChatDesk, events_of, next_update, until, updates_of
from fake_engine import PATIENCE_S, FakeEngine
from paged_chat.app.attachments import Attachment
from paged_chat.app.chats import ReplyCost
from paged_chat.app.errors import (
    CannotContinue,
    ChatNotFound,
    EmptyMessage,
    MessageNotFound,
    ReplyRunning,
)
from paged_chat.app.service.chat_events import ChatChanged, ChatsChanged, EngineStatus
from paged_chat.app.service.reply_cost import continued
from paged_chat.app.store.store import Store
from paged_chat.engine.errors import InvalidParameter, PromptTooLong
from paged_chat.engine.prefill_speed import Work, num_attended
from paged_chat.engine.request import SamplingParams


@pytest.fixture
def desk(tmp_path):
    desk = ChatDesk(tmp_path / "chats.db", FakeEngine())
    yield desk
    desk.close()


@pytest.fixture
def service(desk):
    return desk.service


# One turn


def test_message_and_draft_are_on_the_disk_before_anything_is_computed(desk, service):
    desk.fake.hold()
    chat = service.create_chat()
    turn = service.send(chat.id, "Three days in Lisbon")
    with Store(desk.path) as another:
        [message, draft] = another.tree(chat.id)
        assert (message.text, message.status) == ("Three days in Lisbon", "done")
        assert (draft.id, draft.text, draft.status, draft.parent_id) == (turn.replies[0].id, "", "draft", message.id)
        assert another.chat(chat.id).title == "Three days in Lisbon"
    assert [reply.id for reply in service.running(chat.id)] == [draft.id]
    assert service.running_chat_ids() == {chat.id}


def test_a_reply_is_told_as_it_grows_and_stored_with_what_it_cost(desk, service):
    desk.fake.enqueue("Day one")
    desk.fake.hold()
    chat = service.create_chat()
    service.send(chat.id, "Lisbon")
    with service.watch(chat.id, until_idle=True) as watcher:
        assert watcher.get(PATIENCE_S) == ChatChanged(chat.id)
        assert next_update(watcher).text == ""
        desk.fake.let(3)
        until(lambda: service.running(chat.id)[0].text == "Day")
        # What is known of the prompt may come before the text.
        while (update := next_update(watcher)).text == "":
            pass
        assert (update.text, update.new_text, update.status) == ("Day", "Day", "draft")
        desk.fake.go()
        while not (update := next_update(watcher)).has_ended:
            pass
        assert (update.text, update.status, update.finish_reason) == ("Day one", "done", "stop")
        assert updates_of(events_of(watcher)) == []
    desk.finish(chat)
    [_, reply] = desk.store.tree(chat.id)
    prompt = "<s>user:Lisbon</s>assistant:"
    assert desk.fake.models[0].prompts() == [prompt]
    assert (reply.text, reply.status, reply.finish_reason, reply.model) == ("Day one", "done", "stop", MODEL)
    assert len(reply.token_ids) == len("Day one") + 1  # with the end token
    cost = reply.cost
    assert (cost.num_cached_tokens, cost.num_computed_tokens, cost.num_generated_tokens) == (0, 23, 8)
    assert cost.ttft_ms > 0
    assert cost.tokens_per_s > 0
    assert update.cost == cost
    assert service.running(chat.id) == ()


def test_what_a_reply_takes_is_known_before_its_first_token_and_grows_with_it(desk, service):
    desk.fake.enqueue("Day one")
    desk.fake.hold()
    chat = service.create_chat()
    service.send(chat.id, "Lisbon")
    with service.watch(chat.id, until_idle=True) as watcher:
        while (update := next_update(watcher)).cost_so_far is None:
            pass
        nothing_yet = ReplyCost(
            num_cached_tokens=0, num_computed_tokens=23, num_generated_tokens=0, ttft_ms=None, tokens_per_s=None
        )
        assert (update.cost_so_far, update.cost) == (nothing_yet, None)
        desk.fake.let(3)
        while (update := next_update(watcher)).text == "":
            pass
        so_far = update.cost_so_far
        assert (so_far.num_computed_tokens, so_far.num_generated_tokens, update.cost) == (23, 3, None)
        assert so_far.ttft_ms > 0
        desk.fake.go()
        while not (update := next_update(watcher)).has_ended:
            pass
        assert update.cost_so_far == update.cost


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


def test_the_next_turn_computes_only_what_is_new(desk, service):
    chat = service.create_chat()
    [first] = desk.ask(chat, "Lisbon", "Day one")
    [second] = desk.ask(chat, "And then?", "Day two")
    total = 23 + len(first.token_ids)
    assert desk.fake.models[0].submitted[1][0][:total] == [*desk.fake.models[0].submitted[0][0], *first.token_ids]
    assert second.cost.num_cached_tokens == total - 1
    assert desk.texts(chat) == ["Lisbon", "Day one", "And then?", "Day two"]


def test_the_system_prompt_and_the_chats_own_settings_are_sent(desk, service):
    sampling = SamplingParams(temperature=1.2, top_k=7, seed=42, max_tokens=9)
    chat = service.create_chat(system_prompt="Be brief", sampling=sampling)
    desk.ask(chat, "Hi", "Ho")
    [(_, params, _)] = desk.fake.models[0].submitted
    assert desk.fake.models[0].prompts() == ["<s>system:Be brief</s>user:Hi</s>assistant:"]
    assert (params.temperature, params.top_k, params.seed, params.max_tokens, params.n) == (1.2, 7, 42, 9, 1)


def test_users_share_no_cache(desk, service):
    chats = [service.create_chat(user=user) for user in ("ann", "bob", "ann")]
    replies = [desk.ask(chat, "The same question", "The same answer")[0] for chat in chats]
    assert [salt for _, _, salt in desk.fake.models[0].submitted] == ["ann", "bob", "ann"]
    assert [reply.cost.num_cached_tokens for reply in replies] == [0, 0, 32]


def test_attachments_are_stored_and_sent_before_the_message(desk, service):
    chat = service.create_chat()
    service.send(chat.id, "What is it?", attachments=[Attachment("a.txt", "Some text")])
    desk.finish(chat)
    written = "File a.txt:\n```\nSome text\n```\n\nWhat is it?"
    assert desk.texts(chat)[0] == written
    assert desk.fake.models[0].prompts() == [f"<s>user:{written}</s>assistant:"]


def test_an_empty_message_is_refused_and_nothing_is_stored(service):
    chat = service.create_chat()
    with pytest.raises(EmptyMessage, match="write something"):
        service.send(chat.id, " \n")
    assert len(service.tree(chat.id)) == 0


# The window (C5)


@pytest.fixture
def small(tmp_path):
    desk = ChatDesk(tmp_path / "small.db", FakeEngine(max_model_len=128))
    until(lambda: desk.service.engine_status.phase == "ready")
    yield desk
    desk.close()


def test_a_message_longer_than_the_window_is_refused_and_nothing_is_stored(small):
    chat = small.service.create_chat()
    with pytest.raises(PromptTooLong, match="this message has 200 tokens, and the model's window holds 128"):
        small.service.send(chat.id, "x" * 200)
    with pytest.raises(PromptTooLong):
        small.service.plans.send(chat.id, "x" * 200).result(PATIENCE_S)
    assert (len(small.service.tree(chat.id)), small.service.chat(chat.id).title) == (0, "New chat")


def test_c5_a_long_chat_leaves_out_old_turns_and_says_which_before_it_is_sent(small):
    chat = small.service.create_chat(system_prompt="Be brief")
    replies = [small.ask(chat, f"Question {number}", f"Answer {number}")[0] for number in range(3)]
    assert [reply.status for reply in replies] == ["done"] * 3
    plan = small.service.plans.send(chat.id, "Question 3").result(PATIENCE_S)
    assert plan.num_left_out_turns > 0
    path = [message.id for message in small.service.tree(chat.id).path(replies[-1].id)]
    assert list(plan.left_out_ids) == path[: len(plan.left_out_ids)]
    assert str(plan).endswith(f"; {plan.num_left_out_turns} old turns are left out")
    small.fake.enqueue("Answer 3")
    small.service.send(chat.id, "Question 3")
    last = updates_of(small.finish(chat))[-1]
    assert last.plan.left_out_ids == plan.left_out_ids
    assert last.status == "done"
    assert small.fake.models[0].prompts()[-1].startswith("<s>system:Be brief</s>user:Question ")


# Replies side by side


def test_four_replies_are_one_request_and_four_siblings(desk, service):
    chat = service.create_chat(sampling=SamplingParams(temperature=1.0, seed=100))
    replies = desk.ask(chat, "A name?", "Ann", "Bob", "Cleo", "Dan")
    [(prompt, params, _)] = desk.fake.models[0].submitted
    assert (params.n, params.seed) == (4, 100)
    assert [reply.text for reply in replies] == ["Ann", "Bob", "Cleo", "Dan"]
    assert [reply.sampling.seed for reply in replies] == [100, 101, 102, 103]
    assert all(reply.sampling.n == 1 for reply in replies)
    assert len({reply.parent_id for reply in replies}) == 1
    # The prompt is computed once, for the first of them; the others find all of it.
    assert [reply.cost.num_computed_tokens for reply in replies] == [len(prompt), 0, 0, 0]
    assert [reply.cost.num_cached_tokens for reply in replies] == [0, len(prompt), len(prompt), len(prompt)]
    assert desk.texts(chat) == ["A name?", "Ann"]


def test_the_chats_own_n_counts_unless_another_is_asked_for(desk, service):
    chat = service.create_chat(sampling=SamplingParams(n=2, temperature=1.0))
    assert len(service.send(chat.id, "two").replies) == 2
    desk.finish(chat)
    assert len(service.send(chat.id, "three", n=3).replies) == 3
    desk.finish(chat)
    assert len(service.retry(chat.id, service.chat(chat.id).active_leaf_id).replies) == 1


def test_more_replies_than_can_run_at_once_are_refused_and_nothing_is_stored(service):
    chat = service.create_chat()
    with pytest.raises(InvalidParameter, match="n is 65, but at most 64 replies run at once"):
        service.send(chat.id, "Go", n=65)
    assert len(service.tree(chat.id)) == 0


def test_no_reply_at_all_is_refused_and_nothing_is_stored(desk, service):
    chat = service.create_chat()
    for n in (0, -1):
        with pytest.raises(InvalidParameter, match=f"n must be a whole number from 1 to 256, not {n}"):
            service.send(chat.id, "Hello?", n=n)
    assert len(service.tree(chat.id)) == 0


def test_behind_the_last_seed_comes_the_first(desk, service):
    last = SamplingParams(seed=2**63 - 1)
    chat = service.create_chat(sampling=last)
    [reply] = desk.ask(chat, "Hello?", "1")
    desk.fake.enqueue("2")
    [again] = service.retry(chat.id, reply.id).replies
    desk.finish(chat)
    desk.fake.enqueue("3", "4")
    both = service.send(chat.id, "More?", n=2).replies
    desk.finish(chat)
    assert [message.sampling.seed for message in (reply, again, *both)] == [2**63 - 1, 0, 0, 1]


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


# Stop and continue


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


def test_stop_all_reaches_every_chat(desk, service):
    desk.fake.hold()
    chats = [service.create_chat() for _ in range(3)]
    for chat in chats:
        service.send(chat.id, "Go")
    assert service.running_chat_ids() == {chat.id for chat in chats}
    assert service.stop_all() == 3
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


# C1, C2, C4: screens come and go


def test_c1_two_chats_stream_at_once_and_each_reply_lands_in_its_own(desk, service):
    desk.fake.enqueue("About Lisbon, at length")
    desk.fake.hold()
    lisbon, porto = service.create_chat(), service.create_chat()
    service.send(lisbon.id, "Lisbon")
    with service.watch(lisbon.id) as watcher:
        desk.let(lisbon, 5)
        assert next_update(watcher).chat_id == lisbon.id
    # The person is elsewhere from now on.
    desk.fake.enqueue("About Porto")
    service.send(porto.id, "Porto")
    desk.fake.go()
    desk.finish(porto)
    desk.finish(lisbon)
    assert desk.texts(lisbon) == ["Lisbon", "About Lisbon, at length"]
    assert desk.texts(porto) == ["Porto", "About Porto"]


def test_c2_a_stale_tab_adds_a_branch_and_overwrites_nothing(desk, service):
    chat = service.create_chat()
    [shown] = desk.ask(chat, "Lisbon", "Sunny")
    with service.watch(chat.id) as stale_tab:
        stale_tab.get(PATIENCE_S)
        desk.ask(chat, "From the first tab", "One")
        # The second tab still shows the first turn only, and sends below what it shows.
        desk.fake.enqueue("Two")
        service.send(chat.id, "From the second tab", parent_id=shown.id)
        desk.finish(chat)
        assert any(event == ChatChanged(chat.id) for event in iter(lambda: stale_tab.get(0.2), None))
    assert desk.texts(chat) == ["Lisbon", "Sunny", "From the second tab", "Two"]
    assert [message.text for message in service.tree(chat.id).children(shown.id)] == [
        "From the first tab",
        "From the second tab",
    ]


def test_c2_a_stale_tab_hears_of_a_change_made_by_another_process(desk, service):
    chat = service.create_chat()
    with Store(desk.path) as another, service.watch(chat.id) as tab:
        assert tab.get(PATIENCE_S) == ChatChanged(chat.id)
        assert tab.get(0) is None
        another.update_chat(chat.id, title="Renamed elsewhere")
        assert tab.get(PATIENCE_S) == ChatChanged(chat.id)
        assert service.chat(chat.id).title == "Renamed elsewhere"
        another.delete_chat(chat.id)
        assert tab.get(PATIENCE_S) == ChatChanged(chat.id, is_deleted=True)


def test_c4_closing_a_screen_ends_nothing_and_the_next_one_sees_the_reply_from_its_start(desk, service):
    desk.fake.enqueue("A reply that outlives the page")
    desk.fake.hold()
    chat = service.create_chat()
    service.send(chat.id, "Go")
    with service.watch(chat.id):
        desk.let(chat, 7)
    with service.watch(chat.id) as returned:
        assert returned.get(PATIENCE_S) == ChatChanged(chat.id)
        update = next_update(returned)
        assert (update.text, update.new_text) == ("A reply", "A reply")
    assert desk.texts(chat) == ["Go", "A reply"]
    desk.fake.go()
    desk.finish(chat)
    assert desk.texts(chat) == ["Go", "A reply that outlives the page"]


def test_c4_a_screen_that_comes_after_the_end_finds_the_reply_stored(desk, service):
    chat = service.create_chat()
    desk.ask(chat, "Go", "Done")
    with service.watch(chat.id, until_idle=True) as watcher:
        assert list(watcher) == [ChatChanged(chat.id)]


# Many watchers


def test_twenty_watchers_each_get_the_whole_reply_by_appending(desk, service):
    text = "The quick brown fox jumps over the lazy dog. " * 4
    desk.fake.enqueue(text)
    desk.fake.pace.pause_s = 0.001
    chat = service.create_chat()
    service.send(chat.id, "Go")

    def follow(delay_s):
        time.sleep(delay_s)  # some come late
        appended, last = "", None
        for update in updates_of(list(service.watch(chat.id, until_idle=True))):
            appended = update.text if update.new_text == update.text else appended + update.new_text
            assert update.text == appended
            last = update
        return appended, last

    with ThreadPoolExecutor(20) as screens:
        told = list(screens.map(follow, [0.01 * number for number in range(20)], timeout=PATIENCE_S))
    assert {appended for appended, _ in told if appended} == {text}
    assert all(last.status == "done" for _, last in told if last is not None)


def test_an_event_loop_follows_several_chats_at_once(desk, service):
    desk.fake.pace.pause_s = 0.001
    chats = [service.create_chat() for _ in range(3)]

    async def follow(chat):
        desk.fake.enqueue(f"Reply in {chat.id}")
        service.send(chat.id, "Go")
        async with service.watch(chat.id, until_idle=True) as watcher:
            return [event async for event in watcher][-1].text

    async def story():
        async with asyncio.timeout(PATIENCE_S):
            return await asyncio.gather(*(follow(chat) for chat in chats))

    texts = asyncio.run(story())
    assert sorted(texts) == sorted(f"Reply in {chat.id}" for chat in chats)


def test_a_watcher_that_nobody_reads_costs_the_others_nothing(desk, service):
    chat = service.create_chat()
    idle = service.watch(chat.id)
    desk.ask(chat, "Go", "A reply of some length")
    updates = updates_of(list(iter(lambda: idle.get(0.2), None)))
    assert [update.text for update in updates] == ["A reply of some length"]


def test_the_list_of_chats_and_the_engine_are_watched_too(desk, service):
    until(lambda: service.engine_status.phase == "ready")
    with service.watch_app() as watcher:
        status = watcher.get(PATIENCE_S)
        assert status == EngineStatus(phase="ready", model=MODEL, window=4096, load_s=0.25)
        chat = service.create_chat()
        assert watcher.get(PATIENCE_S) == ChatsChanged()
        service.rename(chat.id, "Another name")
        assert watcher.get(PATIENCE_S) == ChatsChanged()
        service.delete_chat(chat.id)
        assert watcher.get(PATIENCE_S) == ChatsChanged()


def test_the_list_is_told_of_chats_that_another_process_makes(desk, service):
    with Store(desk.path) as another, service.watch_app() as watcher:
        watcher.get(PATIENCE_S)
        another.create_chat(title="From the terminal")
        assert ChatsChanged() in iter(lambda: watcher.get(PATIENCE_S), None)
        assert [chat.title for chat in service.chats()] == ["From the terminal"]


# Plans


def test_a_plan_says_what_sending_would_reuse_and_compute(desk, service):
    chat = service.create_chat()
    desk.ask(chat, "Tell me about Lisbon", "It lies on seven hills")
    plan = service.plans.send(chat.id, "And Porto?").result(PATIENCE_S)
    [reply] = desk.ask(chat, "And Porto?", "On two")
    assert (plan.num_reused_tokens, plan.num_computed_tokens) == (
        reply.cost.num_cached_tokens,
        reply.cost.num_computed_tokens,
    )
    assert plan.num_prompt_tokens == len(desk.fake.models[0].submitted[1][0])
    assert plan.window == 4096
    num_blocks, num_more = divmod(plan.num_reused_tokens, 16)
    assert str(plan) == (
        f"reuses {num_blocks} blocks and {num_more} tokens, computes {plan.num_computed_tokens} tokens"
    )


def test_a_plan_below_a_message_that_is_gone_says_so(desk, service):
    chat = service.create_chat()
    with pytest.raises(MessageNotFound):
        service.plans.send(chat.id, "More", parent_id=999)


def test_planning_stores_nothing_and_changes_nothing_in_the_pool(desk, service):
    chat = service.create_chat()
    before = service.ask_engine(lambda engine: engine.snapshot()).result(PATIENCE_S)
    service.plans.send(chat.id, "A question", attachments=[Attachment("a.txt", "text")]).result(PATIENCE_S)
    assert service.ask_engine(lambda engine: engine.snapshot()).result(PATIENCE_S) == before
    assert (len(service.tree(chat.id)), service.version(chat.id)) == (0, chat.version)


def test_edits_and_retries_are_planned_too(desk, service):
    chat = service.create_chat()
    [reply] = desk.ask(chat, "Tell me about Lisbon", "It lies on seven hills")
    retried = service.plans.retry(chat.id, reply.id).result(PATIENCE_S)
    assert retried.num_computed_tokens == 1
    edited = service.plans.edit(chat.id, reply.parent_id, "Tell me about Porto").result(PATIENCE_S)
    assert edited.num_reused_tokens == 1 + len("user:Tell me about ")
    with pytest.raises(InvalidParameter):
        service.plans.edit(chat.id, reply.id, "x")


def test_forks_and_continuing_are_planned_too(desk, service):
    chat = service.create_chat(sampling=SamplingParams(max_tokens=8))
    [reply] = desk.ask(chat, "Tell me about Lisbon", "It lies on seven hills")
    assert reply.finish_reason == "length"
    num_prompt = len(desk.fake.models[0].submitted[0][0])
    continued = service.plans.continue_reply(chat.id, reply.id).result(PATIENCE_S)
    # The prompt and the reply but for its last token, which nobody has read yet.
    assert (continued.num_prompt_tokens, continued.num_reused_tokens) == (num_prompt + 8, num_prompt + 7)
    with pytest.raises(InvalidParameter, match="only a reply can be continued"):
        service.plans.continue_reply(chat.id, reply.parent_id)
    forked = service.plans.fork(chat.id, reply.id).result(PATIENCE_S)
    assert forked.num_reused_tokens == num_prompt + 7
    assert forked.num_computed_tokens == 1 + len("</s>user:</s>assistant:") - 2 * 3
    at_question = service.plans.fork(chat.id, reply.parent_id).result(PATIENCE_S)
    assert at_question.num_computed_tokens == 1
    # What was planned is what a fork finds.
    fork = service.fork(chat.id, reply.id)
    [planned] = [service.plans.send(fork.id, "And Porto?").result(PATIENCE_S)]
    assert planned.num_reused_tokens == forked.num_reused_tokens


def test_the_time_to_the_first_token_is_planned_once_enough_was_measured(desk, service):
    chat = service.create_chat()
    text = "Tell me about Lisbon"
    assert service.plans.send(chat.id, text).result(PATIENCE_S).expected_ttft is None
    speed = service.ask_engine(lambda engine: engine._core._speed).result(PATIENCE_S)
    for num_tokens in (20, 40, 80):
        speed.add(Work(1, num_tokens, num_attended(0, num_tokens)), 0.3 + 0.005 * num_tokens, is_done=True)
    plan = service.plans.send(chat.id, text).result(PATIENCE_S)
    assert plan.expected_ttft.seconds == pytest.approx(0.3 + 0.005 * plan.num_computed_tokens)
    assert str(plan) == f"reuses nothing, computes {plan.num_computed_tokens} tokens, first token in ~0.5 s"


def test_tokens_are_counted(service):
    assert service.tokens.count("Lisbon").result(PATIENCE_S) == 6


def test_the_reply_itself_says_what_it_reuses(desk, service):
    chat = service.create_chat()
    desk.ask(chat, "Lisbon", "Sunny")
    desk.fake.enqueue("Rainy")
    service.send(chat.id, "Porto")
    last = updates_of(desk.finish(chat))[-1]
    assert last.plan.num_reused_tokens == last.cost.num_cached_tokens
    assert last.request_id == "r2"


# Chats


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
    for path in desk.path.parent.iterdir():
        assert b"Secret" not in path.read_bytes()


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


# Quick from an event loop


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
    assert time.monotonic() - start < 1.0
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
