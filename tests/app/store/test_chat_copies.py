"""Whole chats: forked, imported with all they hold, and counted."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from paged_chat.app.errors import ImportRefused
from paged_chat.app.imported_chat import ImportedChat, ImportedMessage
from paged_chat.app.store.store_stats import StoreStats
from paged_chat.engine.request import SamplingParams
from turns import COST, SEEDED, ask, retry

NOON = datetime(2026, 11, 29, 12, tzinfo=UTC)

# Whole chats


def test_a_fork_is_a_chat_of_its_own_that_begins_alike(store):
    chat = store.create_chat(title="Lisbon", system_prompt="Be brief.", model="tiny", tags=["travel"])
    question, reply = ask(store, chat.id, "One?", "1")
    retry(store, question, "One!")
    _, second = ask(store, chat.id, "Two?", "2", below=reply.id)
    ask(store, chat.id, "Three?", "3", below=second.id)

    fork = store.fork_chat(chat.id, second.id)
    path = store.tree(fork.id).path(fork.active_leaf_id)
    assert [message.text for message in path] == ["One?", "1", "Two?", "2"]
    assert [message.token_ids for message in path] == [None, (8, 2), None, (8, 2)]
    assert path[-1] == replace(second, id=path[-1].id, chat_id=fork.id, parent_id=path[-2].id)
    assert (fork.title, fork.system_prompt, fork.model, fork.tags) == (
        "Lisbon (fork)", "Be brief.", "tiny", ("travel",),
    )  # fmt: skip

    ask(store, fork.id, "Another?", "4", below=fork.active_leaf_id)
    assert len(store.tree(chat.id)) == 7
    assert len(store.tree(fork.id)) == 6


def test_a_fork_of_a_reply_that_still_grows_is_stopped_where_it_was(store):
    chat = store.create_chat()
    [draft] = store.add_turn(chat.id, None, "Hello?", [SEEDED]).replies
    store.save_draft(draft.id, "Hel", (1,))
    fork = store.fork_chat(chat.id, draft.id)
    copy = store.message(fork.active_leaf_id)
    assert (copy.text, copy.token_ids, copy.status, copy.finish_reason) == ("Hel", (1,), "stopped", "abort")
    assert store.message(draft.id).status == "draft"


IMPORTED = ImportedChat(
    title="Imported",
    has_own_title=True,
    is_pinned=True,
    is_archived=True,
    tags=("old",),
    system_prompt="Be kind.",
    model="tiny",
    sampling=SamplingParams(temperature=1.0),
    messages=(
        ImportedMessage(parent=None, role="user", text="One?", created_at=NOON),
        ImportedMessage(
            parent=0, role="assistant", text="1", token_ids=(7,), model="tiny", sampling=SamplingParams(seed=3),
            cost=COST, finish_reason="length", status="done", created_at=NOON + timedelta(seconds=1),
        ),
        ImportedMessage(
            parent=0, role="assistant", text="", status="failed", error="the disk is on fire", created_at=NOON
        ),
        ImportedMessage(parent=None, role="user", text="One!", created_at=NOON),
        ImportedMessage(parent=3, role="assistant", text="Er", status="draft", created_at=NOON),
    ),
    active_leaf=1,
    created_at=NOON,
    updated_at=NOON + timedelta(minutes=1),
)  # fmt: skip


def test_an_imported_chat_keeps_everything(store):
    [chat] = store.import_chats([IMPORTED], user="ada")
    for name in ("title", "has_own_title", "is_pinned", "is_archived", "tags", "system_prompt", "model", "sampling",
                 "created_at", "updated_at"):  # fmt: skip
        assert getattr(chat, name) == getattr(IMPORTED, name), name
    assert chat.user == "ada"

    messages = list(store.tree(chat.id))
    first = messages[0].id
    assert [message.parent_id for message in messages] == [None, first, first, None, first + 3]
    assert chat.active_leaf_id == first + 1
    for message, imported in zip(messages[:4], IMPORTED.messages, strict=False):
        for name in ("role", "text", "token_ids", "model", "sampling", "cost", "finish_reason", "status", "error",
                     "created_at"):  # fmt: skip
            assert getattr(message, name) == getattr(imported, name), name
    assert (messages[4].status, messages[4].finish_reason) == ("stopped", "abort")  # nobody is writing it


def test_an_import_that_fails_midway_leaves_nothing(store):
    def damaged():
        yield IMPORTED
        raise ImportRefused("line 2 isn't JSON")

    with pytest.raises(ImportRefused, match="line 2"):
        store.import_chats(damaged())
    without_zone = replace(IMPORTED, created_at=datetime(2026, 11, 29))
    with pytest.raises(TypeError, match="offset-naive"):
        store.import_chats([IMPORTED, without_zone])  # the first one was written already
    assert store.stats() == StoreStats(
        num_chats=0, num_messages=0, num_cached_tokens=0, num_computed_tokens=0, num_generated_tokens=0,
        num_bytes=store.stats().num_bytes,
    )  # fmt: skip


def test_the_figures_count_what_is_not_deleted(store):
    chat = store.create_chat()
    question, _ = ask(store, chat.id, "One?", "1")
    deleted = retry(store, question, "One!")
    gone = store.create_chat()
    ask(store, gone.id, "Two?", "2")
    ask(store, store.create_chat(user="bob").id, "Three?", "3")
    store.delete_message(deleted.id)
    store.delete_chat(gone.id)
    stats = store.stats()
    assert (stats.num_chats, stats.num_messages) == (1, 2)
    assert (stats.num_cached_tokens, stats.num_computed_tokens, stats.num_generated_tokens) == (10, 3, 2)
    assert stats.num_bytes >= store.path.stat().st_size > 0
