"""Branches from within a reply: its tokens, what else could have stood there, and a sibling that takes it."""

import math

import pytest

from chat_desk import ChatDesk
from fake_engine import FakeEngine
from paged_chat.app.errors import CannotBranch, EngineUnavailable, ReplyRunning
from paged_chat.app.porting import read_file, write_json
from paged_chat.engine.request import SamplingParams, TokenLogprobs
from patience import PATIENCE_S
from tiny_tokenizer import END, spelled

CAT = {"c": {"c": 0.5, "b": 0.25, "r": 0.125}, "t": {"s": 0.75, "t": 0.125}}


@pytest.fixture
def desk(tmp_path):
    desk = ChatDesk(tmp_path / "chats.db", FakeEngine())
    desk.fake.odds |= CAT
    yield desk
    desk.close()


@pytest.fixture
def chat(service):
    return service.create_chat(sampling=SamplingParams(max_tokens=None, logprobs=2, seed=40))


def tokens_of(service, reply):
    return service.tokens.of_reply(reply.chat_id, reply.id).result(PATIENCE_S)


def shown(token):
    return [(one.piece.text, round(one.probability, 3), one.is_written) for one in token.alternatives]


def probabilities(shown_tokens):
    return [token.probability and round(token.probability, 3) for token in shown_tokens.tokens]


def branch(desk, reply, token_index, token, says):
    """The finished reply that takes another token."""
    desk.fake.enqueue(says)
    draft = desk.service.branch_at_token(reply.chat_id, reply.id, token_index, token)
    desk.finish(desk.service.chat(reply.chat_id))
    return desk.stored(draft)


# What is kept, and shown


def test_every_token_is_shown_once_with_its_alternatives(desk, service, chat):
    [reply] = desk.ask(chat, "Pet?", "a cat")
    shown_tokens = tokens_of(service, reply)
    assert [token.piece.text for token in shown_tokens.tokens] == ["a", " ", "c", "a", "t", "</s>"]
    assert probabilities(shown_tokens) == [1.0, 1.0, 0.5, 1.0, 0.125, 1.0]
    assert shown(shown_tokens.tokens[2]) == [("c", 0.5, True), ("b", 0.25, False)]
    # What was drawn is there, however unlikely it was.
    assert shown(shown_tokens.tokens[4]) == [("s", 0.75, False), ("t", 0.125, True)]
    assert (shown_tokens.model, shown_tokens.has_alternatives) == ("fake-1b", True)


def test_nothing_is_kept_unless_it_is_wanted(desk, service):
    [reply] = desk.ask(service.create_chat(), "Pet?", "a cat")
    assert desk.store.token_logprobs(reply.id) == ()
    shown_tokens = tokens_of(service, reply)
    assert [token.piece.text for token in shown_tokens.tokens] == ["a", " ", "c", "a", "t", "</s>"]
    assert probabilities(shown_tokens) == [None] * 6
    assert not shown_tokens.has_alternatives


def test_each_of_several_replies_keeps_its_own(desk, service, chat):
    first, second = desk.ask(chat, "Pet?", "cat", "bat")
    assert shown(tokens_of(service, first).tokens[0]) == [("c", 0.5, True), ("b", 0.25, False)]
    assert shown(tokens_of(service, second).tokens[0]) == [("b", 1.0, True)]


def test_bytes_of_a_character_are_seen_one_by_one(desk, service, chat):
    [reply] = desk.ask(chat, "Go", "a é")
    assert [token.piece.text for token in tokens_of(service, reply).tokens] == ["a", " ", "⟨C3⟩", "⟨A9⟩", "</s>"]


def test_a_draft_keeps_its_own_and_what_is_continued_goes_on_with_them(desk, service, chat):
    desk.fake.enqueue("a cat")
    desk.fake.hold()
    [draft] = service.send(chat.id, "Pet?").replies
    desk.let(chat, 3)
    service.stop(chat.id)
    desk.finish(chat)
    assert [one.token_id for one in desk.store.token_logprobs(draft.id)] == spelled("a c")
    desk.fake.enqueue("t")
    desk.fake.go()
    service.continue_reply(chat.id, draft.id)
    desk.finish(chat)
    assert probabilities(tokens_of(service, draft)) == [1.0, 1.0, 0.5, 0.125, 1.0]


def test_a_copy_of_the_chat_has_them_and_a_file_of_it_has_not(desk, service, chat, tmp_path):
    [reply] = desk.ask(chat, "Pet?", "a cat")
    copy = service.fork(chat.id, reply.id)
    assert tokens_of(service, service.message(copy.id, copy.active_leaf_id)).has_alternatives
    path = tmp_path / "chat.json"
    with path.open("w") as out:
        write_json([(service.chat(chat.id), service.tree(chat.id))], out)
    [imported] = service.import_chats(read_file(path).chats)
    [_, brought] = service.tree(imported.id)
    assert (brought.token_ids, brought.sampling.logprobs) == (reply.token_ids, 2)
    assert not tokens_of(service, brought).has_alternatives


# Working them out


def test_what_was_not_kept_is_worked_out_for_one_token_and_leaves_no_trace(desk, service):
    chat = service.create_chat()
    [reply] = desk.ask(chat, "Pet?", "a cat")
    before = service.tree(chat.id)[reply.id], service.version(chat.id)
    desk.fake.enqueue("c")
    token = service.tokens.alternatives_at(chat.id, reply.id, 2).result(PATIENCE_S)
    assert (token.index, token.piece.text, token.probability) == (2, "c", 0.5)
    assert shown(token) == [("c", 0.5, True), ("b", 0.25, False), ("r", 0.125, False)]
    token_ids, params, _ = desk.fake.models[-1].submitted[-1]
    assert (token_ids[-2:], params.max_tokens) == (spelled("a "), 3)
    assert (service.tree(chat.id)[reply.id], service.version(chat.id)) == before
    assert desk.store.token_logprobs(reply.id) == ()
    assert service.running(chat.id) == ()
    with pytest.raises(CannotBranch, match="no token 9"):
        service.tokens.alternatives_at(chat.id, reply.id, 8).result(PATIENCE_S)


# Branching


def test_a_branch_is_a_sibling_that_reuses_all_before_the_new_token(desk, service, chat):
    [reply] = desk.ask(chat, "Pet?", "a cat, and a long tail of more words")
    prompt = reply.cost.num_cached_tokens + reply.cost.num_computed_tokens
    [b] = spelled("b")
    plan = service.plans.branch_at_token(chat.id, reply.id, 2).result(PATIENCE_S)
    assert (plan.num_prompt_tokens, plan.num_reused_tokens, plan.num_computed_tokens) == (prompt + 3, prompt + 2, 1)
    other = branch(desk, reply, 2, b, "ird")
    assert (other.parent_id, other.text, other.status, other.finish_reason) == (
        reply.parent_id,
        "a bird",
        "done",
        "stop",
    )
    assert other.token_ids == (*spelled("a bird"), END)
    assert (other.cost.num_cached_tokens, other.cost.num_computed_tokens) == (prompt + 2, 1)
    assert other.cost.num_generated_tokens == 4
    assert service.chat(chat.id).active_leaf_id == other.id
    assert desk.stored(reply) == reply
    assert other.sampling == SamplingParams(max_tokens=None, logprobs=2, seed=41)


def test_what_is_known_of_a_branch_covers_all_of_it(desk, service, chat):
    [reply] = desk.ask(chat, "Pet?", "a cat")
    other = branch(desk, reply, 2, spelled("b")[0], "at")
    assert probabilities(tokens_of(service, other)) == [1.0, 1.0, 0.25, 1.0, 0.125, 1.0]
    assert shown(tokens_of(service, other).tokens[2]) == [("c", 0.5, False), ("b", 0.25, True)]
    third = branch(desk, other, 4, spelled("x")[0], "!")
    assert third.text == "a bax!"
    # Nothing was kept of a token that was no alternative.
    assert probabilities(tokens_of(service, third)) == [1.0, 1.0, 0.25, 1.0, None, 1.0, 1.0]


def test_the_beginning_of_a_branch_is_stored_and_shown_before_anything_is_computed(desk, service, chat):
    [reply] = desk.ask(chat, "Pet?", "a cat")
    desk.fake.hold()
    draft = service.branch_at_token(chat.id, reply.id, 2, spelled("b")[0])
    assert (draft.text, draft.token_ids, draft.status) == ("a b", tuple(spelled("a b")), "draft")
    assert service.message(chat.id, draft.id).text == "a b"
    service.stop(chat.id)
    desk.finish(chat)
    stopped = desk.stored(draft)
    assert (stopped.text, stopped.status) == ("a b", "stopped")
    assert len(desk.store.token_logprobs(draft.id)) == 3


def test_another_end_or_none_is_a_branch_too(desk, service, chat):
    [reply] = desk.ask(chat, "Pet?", "a cat")
    ended = branch(desk, reply, 2, END, "never said")
    assert (ended.text, ended.status, ended.finish_reason) == ("a ", "done", "stop")
    assert ended.token_ids == (*spelled("a "), END)
    assert ended.cost.num_generated_tokens == 0
    longer = branch(desk, reply, 5, spelled("!")[0], " or two")
    assert longer.text == "a cat! or two"


def test_half_a_character_is_completed(desk, service, chat):
    [reply] = desk.ask(chat, "Go", "a é")
    first, last = spelled("è")
    desk.fake.enqueue_ids(last)
    draft = service.branch_at_token(chat.id, reply.id, 2, first)
    assert draft.text == "a "
    desk.finish(chat)
    assert desk.stored(draft).text == "a è"


def test_a_stop_text_may_span_the_place(desk, service):
    chat = service.create_chat(sampling=SamplingParams(max_tokens=None, stop=("END",), logprobs=1))
    [reply] = desk.ask(chat, "Go", "so EXtra")
    stopped = branch(desk, reply, 4, spelled("N")[0], "D and more")
    assert (stopped.text, stopped.finish_reason) == ("so ", "stop")
    assert len(desk.store.token_logprobs(stopped.id)) == len(stopped.token_ids) == len("so END")


def test_the_longest_length_counts_from_the_beginning_and_again_where_it_was_passed(desk, service):
    chat = service.create_chat(sampling=SamplingParams(max_tokens=4))
    [reply] = desk.ask(chat, "Go", "abcd")
    assert reply.finish_reason == "length"
    desk.fake.enqueue("efgh")
    service.continue_reply(chat.id, reply.id)
    desk.finish(chat)
    assert desk.stored(reply).text == "abcdefgh"
    assert branch(desk, reply, 1, spelled("x")[0], "yzzz").text == "axyz"
    beyond = branch(desk, reply, 5, spelled("x")[0], "yzzz")
    assert (beyond.text, beyond.finish_reason, beyond.sampling.max_tokens) == ("abcdexyz", "length", 4)


def test_a_reply_of_other_ids_is_read_as_this_model_reads_its_text(desk, service, chat):
    [reply] = desk.ask(chat, "Pet?", "a cat")
    desk.store._writer.run(lambda db: db.execute("UPDATE messages SET token_ids = x'0900000009000000'"))
    desk.store._writer.run(lambda db: db.execute("DELETE FROM token_logprobs"))
    assert [token.piece.text for token in tokens_of(service, reply).tokens] == list("a cat")
    assert branch(desk, reply, 2, spelled("b")[0], "at").text == "a bat"


def test_what_cannot_be_is_refused_with_nothing_stored(desk, service, chat):
    [reply] = desk.ask(chat, "Pet?", "a cat")
    before = len(service.tree(chat.id))
    with pytest.raises(CannotBranch, match="no token 7: it has 6"):
        service.branch_at_token(chat.id, reply.id, 6, 5)
    with pytest.raises(CannotBranch, match="there is no token -1"):
        service.branch_at_token(chat.id, reply.id, 2, -1)
    with pytest.raises(CannotBranch, match="only a reply"):
        service.tokens.of_reply(chat.id, reply.parent_id)
    with pytest.raises(CannotBranch, match="no token 7"):
        service.plans.branch_at_token(chat.id, reply.id, 6).result(PATIENCE_S)
    desk.fake.hold()
    [draft] = service.send(chat.id, "More").replies
    with pytest.raises(ReplyRunning):
        service.branch_at_token(chat.id, draft.id, 0, 5)
    assert len(service.tree(chat.id)) == before + 2
    desk.fake.may_load.clear()
    service.switch_model("other", force=True)
    with pytest.raises(EngineUnavailable, match="still loading"):
        service.branch_at_token(chat.id, reply.id, 2, 5)
    assert len(service.tree(chat.id)) == before + 2


def test_what_was_kept_is_what_was_drawn(desk, service, chat):
    [reply] = desk.ask(chat, "Pet?", "cat")
    c, a, t = spelled("cat")
    [s] = spelled("s")
    kept = desk.store.token_logprobs(reply.id)
    assert kept[1] == TokenLogprobs(a, 0.0, ((a, 0.0),))
    assert kept[2].logprob == pytest.approx(math.log(0.125), abs=1e-3)
    assert [token_id for token_id, _ in kept[2].top] == [s, t]
    assert kept[0].token_id == c
