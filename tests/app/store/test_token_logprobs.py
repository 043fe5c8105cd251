"""How likely a reply's tokens were: kept beside it, in few bytes, for as long as it is there."""

import math
import sqlite3
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paged_chat.app.chats import NewReply
from paged_chat.app.store.store import default_path
from paged_chat.engine.request import SamplingParams, TokenLogprobs
from turns import SEEDED

FIRST = TokenLogprobs(8, -0.5, ((8, -0.5), (7, -1.25)))
LAST = TokenLogprobs(2, -3.0, ((9, -0.125), (2, -3.0)))


@pytest.fixture
def chat(store):
    return store.create_chat()


def draft(store, chat):
    return store.add_turn(chat.id, None, "Hello?", [SEEDED]).replies[0]


def finish(store, reply_id, logprobs=(), token_ids=(8, 2)):
    return store.finish_reply(
        reply_id,
        text="Yes.",
        token_ids=token_ids,
        status="stopped",
        finish_reason="abort",
        cost=None,
        logprobs=logprobs,
    )


def test_they_are_kept_with_the_draft_and_with_the_whole_reply(store, chat):
    reply = draft(store, chat)
    assert store.token_logprobs(reply.id) == ()
    store.save_draft(reply.id, "Ye", (8,), (FIRST,))
    assert store.token_logprobs(reply.id) == (FIRST,)
    finish(store, reply.id, (FIRST, LAST))
    assert store.token_logprobs(reply.id) == (FIRST, LAST)


def test_a_reply_without_any_keeps_nothing(store, chat):
    reply = draft(store, chat)
    store.save_draft(reply.id, "Ye", (8,), (FIRST,))
    finish(store, reply.id)
    assert store.token_logprobs(reply.id) == ()


def test_some_tokens_may_have_none_and_some_fewer_alternatives(store, chat):
    reply = draft(store, chat)
    kept = (None, TokenLogprobs(2, -1.0), LAST, None)
    finish(store, reply.id, kept, (8, 2, 2, 3))
    assert store.token_logprobs(reply.id) == kept


def test_what_a_branch_begins_with_is_there_from_its_start(store, chat):
    question = store.add_turn(chat.id, None, "Hello?", []).user_message
    new = NewReply(model=None, sampling=SamplingParams(seed=1), text="Ye", token_ids=(8,), logprobs=(FIRST,))
    [reply] = store.add_turn(chat.id, question.id, None, [new]).replies
    assert (reply.text, reply.token_ids, reply.status) == ("Ye", (8,), "draft")
    assert store.token_logprobs(reply.id) == (FIRST,)


def test_they_go_with_their_message_and_into_a_copy_of_it(store, chat):
    reply = finish(store, draft(store, chat).id, (FIRST, LAST))
    fork = store.fork_chat(chat.id, reply.id)
    store.delete_chat(chat.id)
    store.purge_deleted()
    assert store.token_logprobs(reply.id) == ()
    assert store.token_logprobs(fork.active_leaf_id) == (FIRST, LAST)


def test_five_alternatives_take_32_bytes_a_token(store, chat):
    top = tuple((number, -float(number)) for number in range(1, 6))
    reply = finish(store, draft(store, chat).id, (TokenLogprobs(1, -1.0, top),) * 2, (1, 1))
    with closing(sqlite3.connect(default_path())) as connection:
        [(num_top, packed)] = connection.execute("SELECT num_top, packed FROM token_logprobs")
    assert (num_top, len(packed)) == (5, 64)
    assert store.token_logprobs(reply.id)[1].top == top


@given(st.floats(max_value=0.0, min_value=-1e300) | st.just(-math.inf))
def test_a_probability_stays_within_a_hundredth_of_itself(temporary_store, logprob):
    chat = temporary_store.create_chat()
    reply = finish(temporary_store, draft(temporary_store, chat).id, (TokenLogprobs(8, logprob),), (8,))
    [kept] = temporary_store.token_logprobs(reply.id)
    if logprob > math.log(1e-6):
        assert math.exp(kept.logprob) == pytest.approx(math.exp(logprob), rel=0.01)
    else:
        assert math.exp(kept.logprob) < 1.01e-6
