"""Deleting chats and messages, and bringing them back until the store is closed."""

import pytest

from paged_chat.app.errors import ChatNotFound, MessageNotFound
from paged_chat.app.imported_chat import ImportedChat, ImportedMessage
from paged_chat.app.store import deletion
from paged_chat.app.store.store import Store
from turns import ask, retry


@pytest.fixture
def chat(store):
    return store.create_chat(title="Lisbon")


def texts(store, chat_id):
    return [message.text for message in store.tree(chat_id)]


def shown(store, chat_id):
    return [message.text for message in store.tree(chat_id).path(store.chat(chat_id).active_leaf_id)]


def num_rows(store):
    return store._read(
        lambda db: [db.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in ("chats", "messages")]
    )


def test_a_deleted_chat_is_nowhere_until_it_is_brought_back(store, chat):
    question, reply = ask(store, chat.id, "Where is the museum?")
    store.delete_chat(chat.id)
    assert store.chats(archived=None) == []
    assert store.search("museum") == store.search("Lisbon") == []
    for call in (
        lambda: store.chat(chat.id),
        lambda: store.tree(chat.id),
        lambda: store.update_chat(chat.id, title="x"),
        lambda: store.delete_chat(chat.id),
        lambda: store.fork_chat(chat.id, reply.id),
    ):
        with pytest.raises(ChatNotFound):
            call()
    with pytest.raises(MessageNotFound):
        store.message(question.id)

    restored = store.restore_chat(chat.id)
    assert restored.title == "Lisbon"
    assert restored.active_leaf_id == reply.id
    assert texts(store, chat.id) == ["Where is the museum?", "Yes."]
    assert [hit.message_id for hit in store.search("museum")] == [question.id]


def test_a_deleted_message_takes_along_what_hangs_below_it(store, chat):
    question, first = ask(store, chat.id, "One?", "1")
    ask(store, chat.id, "Two?", "2", below=first.id)
    second = retry(store, question, "One!")
    store.set_active_leaf(chat.id, first.id)
    store.delete_message(first.id)
    assert texts(store, chat.id) == ["One?", "One!"]
    assert store.search("Two") == []
    assert shown(store, chat.id) == ["One?", "One!"]  # what is left beside it

    store.delete_message(second.id)
    assert shown(store, chat.id) == ["One?"]  # or above
    store.delete_message(question.id)
    assert shown(store, chat.id) == []
    assert store.chat(chat.id).active_leaf_id is None


def test_bringing_a_message_back_restores_what_was_shown(store, chat):
    question, first = ask(store, chat.id, "One?", "1")
    _, deep = ask(store, chat.id, "Two?", "2", below=first.id)
    retry(store, question, "One!")
    store.set_active_leaf(chat.id, deep.id)
    before = store.tree(chat.id)
    store.delete_message(first.id)
    restored = store.restore_message(chat.id, first.id)
    assert restored.active_leaf_id == deep.id
    assert list(store.tree(chat.id)) == list(before)
    assert [hit.message_id for hit in store.search("Two")] == [deep.parent_id]


def test_bringing_back_what_was_not_shown_moves_nothing(store, chat):
    question, first = ask(store, chat.id, "One?", "1")
    second = retry(store, question, "One!")
    store.delete_message(first.id)
    assert store.chat(chat.id).active_leaf_id == second.id
    assert store.restore_message(chat.id, first.id).active_leaf_id == second.id


def test_undoing_the_later_deletion_does_not_undo_the_earlier_one(store, chat):
    question, first = ask(store, chat.id, "One?", "1")
    retry(store, question, "One!")
    store.delete_message(first.id)
    store.delete_message(question.id)
    with pytest.raises(MessageNotFound):
        store.restore_message(chat.id, first.id)  # its parent is gone
    store.restore_message(chat.id, question.id)
    assert texts(store, chat.id) == ["One?", "One!"]
    store.restore_message(chat.id, first.id)
    assert texts(store, chat.id) == ["One?", "1", "One!"]


def test_what_is_deleted_or_never_was_can_not_be_deleted(store, chat):
    question, reply = ask(store, chat.id, "One?", "1")
    store.delete_message(question.id)
    for message_id in (question.id, reply.id, 999):
        with pytest.raises(MessageNotFound):
            store.delete_message(message_id)
    with pytest.raises(MessageNotFound, match="can't be brought back"):
        store.restore_message(chat.id, reply.id)  # it went with the question
    with pytest.raises(MessageNotFound):
        store.add_turn(chat.id, reply.id, "And?", [])


def test_a_message_is_brought_back_in_its_own_chat_alone(store, chat):
    theirs = store.create_chat(user="somebody else")
    question, _ = ask(store, theirs.id, "Theirs?", "Yes.")
    store.delete_message(question.id)
    with pytest.raises(MessageNotFound, match="can't be brought back"):
        store.restore_message(chat.id, question.id)
    assert texts(store, theirs.id) == []
    with pytest.raises(ChatNotFound):
        store.restore_message("nobody's", question.id)
    store.restore_message(theirs.id, question.id)
    assert texts(store, theirs.id) == ["Theirs?", "Yes."]


def test_closing_the_store_removes_what_was_deleted(store, chat):
    kept, _ = ask(store, chat.id, "Kept?")
    with Store(store.path) as other:
        branch, _ = ask(other, chat.id, "Deleted?", below=None)
        other.delete_message(branch.id)
        gone = other.create_chat()
        ask(other, gone.id, "Gone?")
        other.delete_chat(gone.id)
        assert num_rows(store) == [2, 6]
    assert num_rows(store) == [1, 2]
    with pytest.raises(ChatNotFound, match="can't be brought back any more"):
        store.restore_chat(gone.id)
    with pytest.raises(MessageNotFound, match="can't be brought back any more"):
        store.restore_message(chat.id, branch.id)
    assert texts(store, chat.id) == [kept.text, "Yes."]
    store._write(lambda db: db.execute("INSERT INTO message_search (message_search) VALUES ('integrity-check')"))


def test_another_program_that_closes_takes_nobody_elses_undo(store, chat):
    ours, _ = ask(store, chat.id, "Ours?")
    store.delete_message(ours.id)
    doomed = store.create_chat(title="Doomed")
    store.delete_chat(doomed.id)
    with Store(store.path):
        pass
    assert store.restore_chat(doomed.id).title == "Doomed"
    assert texts(store, chat.id) == []
    store.restore_message(chat.id, ours.id)
    assert texts(store, chat.id) == ["Ours?", "Yes."]


def test_what_was_deleted_below_goes_with_what_is_removed_above(store, chat):
    question, reply = ask(store, chat.id, "One?", "1")
    store.delete_message(reply.id)
    with Store(store.path) as other:
        other.delete_message(question.id)
    assert num_rows(store) == [1, 0]
    with pytest.raises(MessageNotFound, match="can't be brought back"):
        store.restore_message(chat.id, reply.id)


def test_what_a_dead_process_deleted_is_removed_by_the_next_one_that_closes(store, chat, monkeypatch):
    store.delete_chat(chat.id)
    with monkeypatch.context() as patch, Store(store.path) as other:
        patch.setattr(deletion, "is_alive", lambda writer_id: False)
        other.purge_deleted()
    assert num_rows(store) == [0, 0]


def test_a_long_chat_is_removed_whole(store, chat):
    """A chain of messages longer than SQLite follows triggers and foreign keys."""
    messages = tuple(
        ImportedMessage(
            parent=number - 1 if number else None, role="user", text=str(number), created_at=chat.created_at
        )
        for number in range(1100)
    )
    [long, pruned] = store.import_chats(
        [ImportedChat(title="Long", messages=messages, created_at=chat.created_at, updated_at=chat.created_at)] * 2
    )
    store.delete_chat(long.id)
    [root] = store.tree(pruned.id).children(None)
    store.delete_message(root.id)
    store.purge_deleted()
    assert num_rows(store) == [2, 0]
    assert [left.id for left in store.chats()] == [pruned.id, chat.id]
