"""Turns: what is added before a reply is computed, while it grows, and when it ends."""

import os
import signal
import subprocess
import sys
import textwrap
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paged_chat.app.chats import UNTITLED, NewReply, own_title
from paged_chat.app.errors import CannotContinue, ChatNotFound, MessageNotFound, ReplyFinished
from paged_chat.app.store import drafts
from paged_chat.app.store.store import Store
from paged_chat.engine.request import SamplingParams
from turns import COST, SEEDED, ask, finish


@pytest.fixture
def chat(store):
    return store.create_chat()


def stop(store, reply_id, text="Hel", token_ids=(1,)):
    return store.finish_reply(
        reply_id, text=text, token_ids=token_ids, status="stopped", finish_reason="abort", cost=None
    )


# Adding a turn


def test_a_turn_is_the_question_and_a_draft_for_each_reply(store, chat):
    replies = [NewReply(model="tiny", sampling=SamplingParams(temperature=1.2, seed=seed)) for seed in (42, 43)]
    turn = store.add_turn(chat.id, None, "Hello?", replies)

    assert (turn.user_message.role, turn.user_message.text, turn.user_message.status) == ("user", "Hello?", "done")
    assert turn.user_message.parent_id is None
    assert turn.user_message.token_ids is None
    assert [reply.parent_id for reply in turn.replies] == [turn.user_message.id] * 2
    assert [reply.status for reply in turn.replies] == ["draft", "draft"]
    assert [(reply.role, reply.text, reply.token_ids) for reply in turn.replies] == [("assistant", "", ())] * 2
    assert [reply.sampling.seed for reply in turn.replies] == [42, 43]
    assert [reply.model for reply in turn.replies] == ["tiny", "tiny"]
    assert list(store.tree(chat.id)) == [turn.user_message, *turn.replies]
    assert store.chat(chat.id).active_leaf_id == turn.replies[0].id


def test_a_message_can_be_added_without_a_reply(store, chat):
    turn = store.add_turn(chat.id, None, "A note.", [])
    assert turn.replies == ()
    assert store.chat(chat.id).active_leaf_id == turn.user_message.id


def test_a_retry_adds_a_sibling_and_no_question(store, chat):
    question, first = ask(store, chat.id, "Hello?", "1")
    turn = store.add_turn(chat.id, question.id, None, [SEEDED])
    assert turn.user_message is None
    assert store.tree(chat.id).siblings(first.id) == [first, turn.replies[0]]
    assert store.chat(chat.id).active_leaf_id == turn.replies[0].id


def test_an_edit_adds_a_sibling_of_the_question(store, chat):
    _, first = ask(store, chat.id, "One?", "1")
    second, _ = ask(store, chat.id, "Two?", "2", below=first.id)
    edited, answer = ask(store, chat.id, "Three?", "3", below=second.parent_id)
    tree = store.tree(chat.id)
    assert tree.siblings(edited.id) == [second, edited]
    assert [message.text for message in tree.path(answer.id)] == ["One?", "1", "Three?", "3"]


def test_the_first_line_of_the_first_message_becomes_the_title_at_once(store, chat):
    assert chat.title == "New chat"
    _, reply = ask(store, chat.id, "Three days in Lisbon\nwithout museums")
    assert store.chat(chat.id).title == "Three days in Lisbon"
    ask(store, chat.id, "And in Porto?", below=reply.id)
    assert store.chat(chat.id).title == "Three days in Lisbon"
    ask(store, chat.id, "Four days in Lisbon")  # an edit of the first message
    assert store.chat(chat.id).title == "Four days in Lisbon"
    store.update_chat(chat.id, title="Holiday")
    ask(store, chat.id, "Five days in Lisbon")
    assert store.chat(chat.id).title == "Holiday"


def test_a_title_given_at_the_start_is_kept(store):
    chat = store.create_chat(title="Holiday")
    ask(store, chat.id, "Three days in Lisbon")
    assert store.chat(chat.id).title == "Holiday"


def test_a_turn_below_a_message_of_another_chat_is_refused_whole(store, chat):
    other = store.create_chat()
    question, _ = ask(store, other.id, "Hello?")
    for parent_id in (question.id, 999):
        with pytest.raises(MessageNotFound):
            store.add_turn(chat.id, parent_id, "Here?", [SEEDED])
    assert len(store.tree(chat.id)) == 0
    assert store.chat(chat.id) == chat


def test_messages_are_found_by_id(store, chat):
    question, reply = ask(store, chat.id, "Hello?")
    assert store.message(question.id) == question
    assert store.message(reply.id) == reply
    with pytest.raises(MessageNotFound):
        store.message(999)


@settings(deadline=None)
@given(
    text=st.text(),
    token_ids=st.lists(st.integers(0, 2**32 - 1)).map(tuple),
    seed=st.none() | st.integers(0, 2**63 - 1),
    stop_texts=st.lists(st.text(min_size=1), max_size=3).map(tuple),
    ttft_ms=st.none() | st.floats(0, 1e9),
)
def test_any_text_and_any_tokens_come_back(temporary_store, text, token_ids, seed, stop_texts, ttft_ms):
    text = text.replace("\0", "")  # see the next test
    sampling = SamplingParams(seed=seed, stop=stop_texts, temperature=0.1)
    cost = replace(COST, ttft_ms=ttft_ms, tokens_per_s=None)
    chat = temporary_store.create_chat(title=text, system_prompt=text)
    turn = temporary_store.add_turn(chat.id, None, text, [NewReply(model=None, sampling=sampling)])
    reply = temporary_store.finish_reply(
        turn.replies[0].id,
        text=text,
        token_ids=token_ids,
        status="failed",
        finish_reason="error",
        cost=cost,
        error=text,
    )
    assert temporary_store.message(reply.id) == reply
    assert (chat.system_prompt, turn.user_message.text, reply.text, reply.error) == (text,) * 4
    assert chat.title == (own_title(text) or UNTITLED)
    assert (reply.token_ids, reply.sampling, reply.cost) == (token_ids, sampling, cost)


def test_what_is_not_text_is_replaced_where_it_stands(store, chat):
    question, _ = ask(store, chat.id, "a\0b \ud83d c \ud83d\ude00")
    assert question.text == "a\ufffdb \ufffd c 😀"
    assert [hit.message_id for hit in store.search("😀")] == [None, question.id]


# While a reply grows, and when it ends


def test_a_draft_is_saved_again_and_again_and_then_finished(store, chat):
    [draft] = store.add_turn(chat.id, None, "Hello?", [SEEDED]).replies
    store.save_draft(draft.id, "Hel", (1, 2))
    assert store.message(draft.id) == replace(draft, text="Hel", token_ids=(1, 2))
    store.save_draft(draft.id, "Hello", [1, 2, 3])
    assert store.message(draft.id) == replace(draft, text="Hello", token_ids=(1, 2, 3))
    reply = store.finish_reply(
        draft.id, text="Hello.", token_ids=(1, 2, 3, 4), status="done", finish_reason="stop", cost=COST
    )
    assert reply == replace(
        draft, text="Hello.", token_ids=(1, 2, 3, 4), status="done", finish_reason="stop", cost=COST
    )
    assert store.message(reply.id) == reply
    assert store.chat(chat.id).updated_at > chat.updated_at


def test_a_finished_reply_does_not_change_any_more(store, chat):
    question, reply = ask(store, chat.id, "Hello?", "1")
    with pytest.raises(ReplyFinished, match="open the chat again"):
        store.save_draft(reply.id, "late", (1,))
    with pytest.raises(ReplyFinished):
        finish(store, reply.id, "later still")
    with pytest.raises(ReplyFinished):
        store.save_draft(question.id, "not a reply", ())
    with pytest.raises(MessageNotFound):
        store.save_draft(999, "nothing", ())
    assert store.message(reply.id) == reply


def test_another_store_does_not_write_a_reply_of_this_one(store, chat):
    [draft] = store.add_turn(chat.id, None, "Hello?", [SEEDED]).replies
    with Store(store.path) as other:
        assert other.message(draft.id) == draft
        with pytest.raises(ReplyFinished, match="another program"):
            other.save_draft(draft.id, "mine", (1,))
        assert other.stop_orphaned_drafts() == 0  # its writer lives
    assert store.message(draft.id) == draft


def test_a_reply_that_was_cut_short_grows_on(store, chat):
    [draft] = store.add_turn(chat.id, None, "Hello?", [SEEDED]).replies
    stop(store, draft.id)
    again = store.reopen_reply(draft.id)
    assert again == replace(draft, text="Hel", token_ids=(1,))
    store.save_draft(draft.id, "Hello", (1, 2))
    store.finish_reply(draft.id, text="Hello", token_ids=(1, 2), status="done", finish_reason="length", cost=COST)
    assert store.reopen_reply(draft.id).status == "draft"
    store.finish_reply(
        draft.id, text="Hello", token_ids=(1, 2), status="failed", finish_reason="error", cost=COST, error="no memory"
    )
    again = store.reopen_reply(draft.id)
    assert (again.status, again.error, again.finish_reason) == ("draft", None, None)
    finish(store, draft.id, "Hello.")
    assert [message.text for message in store.tree(chat.id)] == ["Hello?", "Hello."]


def test_what_cannot_be_continued_says_why(store, chat):
    question, complete = ask(store, chat.id, "Hello?", "1")
    [growing] = store.add_turn(chat.id, question.id, None, [SEEDED]).replies
    [answered] = store.add_turn(chat.id, question.id, None, [SEEDED]).replies
    stop(store, answered.id)
    below, _ = ask(store, chat.id, "Go on.", below=answered.id)
    for message_id, reason in (
        (question.id, "only a reply can be continued"),
        (complete.id, "this reply is complete"),
        (growing.id, "is being written already"),
        (answered.id, "the chat goes on below"),
    ):
        with pytest.raises(CannotContinue, match=reason):
            store.reopen_reply(message_id)
    with pytest.raises(MessageNotFound):
        store.reopen_reply(999)
    store.delete_message(below.id)
    assert store.reopen_reply(answered.id).status == "draft"


def test_a_store_that_is_closed_stops_its_drafts(store, chat):
    with Store(store.path) as other:
        [theirs] = other.add_turn(chat.id, None, "There?", [SEEDED]).replies
        other.save_draft(theirs.id, "Yes, the", (1, 2))
    [ours] = store.add_turn(chat.id, None, "Here?", [SEEDED]).replies
    stopped = store.message(theirs.id)
    assert stopped == replace(theirs, text="Yes, the", token_ids=(1, 2), status="stopped", finish_reason="abort")
    assert store.message(ours.id).status == "draft"


def test_the_draft_of_a_killed_process_is_stopped_and_can_be_continued(store):
    """C3: after a SIGKILL the person's message and the draft so far are there."""
    writer = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent("""
            import signal, sys
            from pathlib import Path
            from paged_chat.app.chats import NewReply
            from paged_chat.app.store.store import Store
            from paged_chat.engine.request import SamplingParams

            store = Store(Path(sys.argv[1]))
            chat = store.create_chat()
            [draft] = store.add_turn(chat.id, None, "Hello?", [NewReply(model=None, sampling=SamplingParams())]).replies
            store.save_draft(draft.id, "Hel", (1, 2))
            print(draft.id, flush=True)
            signal.pause()
        """), str(store.path)],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert writer.stdout is not None
    draft_id = int(writer.stdout.readline())
    assert store.stop_orphaned_drafts() == 0  # it lives
    assert store.message(draft_id).status == "draft"
    os.kill(writer.pid, signal.SIGKILL)
    writer.wait()
    writer.stdout.close()

    before = store.version(store.message(draft_id).chat_id)
    assert store.stop_orphaned_drafts() == 1
    assert store.stop_orphaned_drafts() == 0
    stopped = store.message(draft_id)
    assert (stopped.text, stopped.token_ids, stopped.status) == ("Hel", (1, 2), "stopped")
    assert store.message(stopped.parent_id).text == "Hello?"
    assert store.version(stopped.chat_id) == before + 1
    assert store.reopen_reply(draft_id).status == "draft"
    finish(store, draft_id, "Hello.")


def test_a_writer_that_was_taken_for_dead_loses_nothing(store, chat, monkeypatch):
    [draft] = store.add_turn(chat.id, None, "Hello?", [SEEDED]).replies
    with Store(store.path) as other, monkeypatch.context() as patch:
        patch.setattr(drafts, "is_alive", lambda writer_id: False)
        assert other.stop_orphaned_drafts() == 1
    assert store.message(draft.id).status == "stopped"
    store.save_draft(draft.id, "Hel", (1,))
    assert store.message(draft.id).status == "draft"
    assert finish(store, draft.id).status == "done"


def test_a_reply_that_ends_after_its_chat_was_deleted_is_kept_for_undo(store, chat):
    [draft] = store.add_turn(chat.id, None, "Hello?", [SEEDED]).replies
    store.delete_chat(chat.id)
    store.save_draft(draft.id, "Hel", (1,))
    finish(store, draft.id, "Hello.")
    with pytest.raises(ChatNotFound):
        store.tree(chat.id)
    store.restore_chat(chat.id)
    assert store.message(draft.id).text == "Hello."
