"""Sending: what is on the disk before anything is computed, what is told, what is stored, and what is refused."""

import pytest

from chat_desk import MODEL, events_of, next_update, until, updates_of
from paged_chat.app.attachments import Attachment
from paged_chat.app.chats import ReplyCost
from paged_chat.app.errors import EmptyMessage
from paged_chat.app.service.chat_events import ChatChanged
from paged_chat.app.store.store import Store
from paged_chat.engine.errors import InvalidParameter, PromptTooLong
from paged_chat.engine.request import SamplingParams
from patience import PATIENCE_S

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
        while (so_far := (update := next_update(watcher)).cost_so_far).num_generated_tokens < 3:
            pass
        assert (so_far.num_computed_tokens, so_far.num_generated_tokens, update.cost) == (23, 3, None)
        assert so_far.ttft_ms > 0
        desk.fake.go()
        while not (update := next_update(watcher)).has_ended:
            pass
        assert update.cost_so_far == update.cost


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
