"""Chats and turns in the store, as the screens and the service use it."""

import threading
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from paged_chat.app.chats import FIRST_TEMPORARY_MESSAGE_ID
from paged_chat.app.errors import ChatNotFound, MessageNotFound
from paged_chat.app.imported_chat import ImportedChat
from paged_chat.app.store.store import Store
from paged_chat.engine.errors import InvalidParameter
from paged_chat.engine.request import SamplingParams
from patience import PATIENCE_S
from turns import SEEDED, ask, finish, retry

NOON = datetime(2026, 11, 29, 12, tzinfo=UTC)


def titles(store: Store, **wanted: object) -> list[str]:
    return [chat.title for chat in store.chats(**wanted)]  # type: ignore[arg-type]


# Chats


def test_a_chat_comes_back_as_it_was_created(store):
    sampling = SamplingParams(temperature=0.7, top_p=0.9, stop=("END", "\ud83d"), stop_token_ids=(5,), max_tokens=None)
    before = datetime.now(UTC)
    chat = store.create_chat(
        user="ada", title="Lisbon", system_prompt="Be brief.", model="tiny", sampling=sampling, tags=["travel", "2026"]
    )
    assert store.chat(chat.id) == chat
    assert (chat.user, chat.title, chat.system_prompt, chat.model) == ("ada", "Lisbon", "Be brief.", "tiny")
    assert chat.sampling == sampling
    assert chat.tags == ("travel", "2026")
    assert chat.has_own_title
    assert (chat.is_pinned, chat.is_archived, chat.is_temporary) == (False, False, False)
    assert chat.active_leaf_id is None
    assert before <= chat.created_at == chat.updated_at <= datetime.now(UTC)
    assert len(chat.id) == 32
    assert len(store.tree(chat.id)) == 0


def test_pinned_chats_come_first_then_those_with_the_newest_messages(store):
    first, second, third = (store.create_chat(title=title) for title in ("first", "second", "third"))
    assert titles(store) == ["third", "second", "first"]
    ask(store, first.id, "Hello?")
    assert titles(store) == ["first", "third", "second"]
    store.update_chat(second.id, is_pinned=True)
    assert titles(store) == ["second", "first", "third"]
    store.update_chat(third.id, title="renamed")  # renaming isn't news
    assert titles(store) == ["second", "first", "renamed"]


def test_a_list_is_read_in_pages(store):
    for number in range(7):
        chat = store.create_chat(title=str(number))
        store.update_chat(chat.id, is_pinned=number in (0, 3))
    pages: list[list[str]] = []
    last = None
    while page := store.chats(limit=3, before=last):
        pages.append([chat.title for chat in page])
        last = page[-1]
    assert pages == [["3", "0", "6"], ["5", "4", "2"], ["1"]]


def test_of_chats_of_one_time_the_last_one_added_comes_first(store):
    store.import_chats(
        ImportedChat(title=str(number), messages=(), created_at=NOON, updated_at=NOON) for number in range(4)
    )
    assert titles(store) == ["3", "2", "1", "0"]
    first, second = store.chats(limit=2)
    assert titles(store, before=second) == ["1", "0"]
    assert [hit.chat.id for hit in store.search("3")][:1] == [first.id]


def test_archived_chats_have_a_list_of_their_own(store):
    store.create_chat(title="here")
    put_away = store.create_chat(title="put away")
    store.update_chat(put_away.id, is_archived=True)
    assert titles(store) == ["here"]
    assert titles(store, archived=True) == ["put away"]
    assert titles(store, archived=None) == ["put away", "here"]


def test_chats_are_found_by_tag(store):
    store.create_chat(title="both", tags=["travel", "Größe", "travel"])
    store.create_chat(title="one", tags=["travel"])
    store.create_chat(title="none")
    deleted = store.create_chat(title="deleted", tags=["gone"])
    store.delete_chat(deleted.id)
    assert titles(store, tag="travel") == ["one", "both"]
    assert titles(store, tag="Größe") == ["both"]
    assert titles(store, tag="trav") == []
    assert store.tags() == ["Größe", "travel"]


def test_people_see_their_own_chats_alone(store):
    hers = store.create_chat(user="ada", title="hers", tags=["a"])
    store.create_chat(user="bob", title="his", tags=["b"])
    assert titles(store, user="ada") == ["hers"]
    assert titles(store) == []
    assert store.tags("bob") == ["b"]
    assert store.chat(hers.id, "ada") == hers
    with pytest.raises(ChatNotFound) as somebody_elses:
        store.chat(hers.id, "bob")
    with pytest.raises(ChatNotFound) as missing:
        store.chat("0" * 32, "bob")
    assert str(somebody_elses.value) == str(missing.value)


def test_an_update_changes_what_it_names(store):
    chat = store.create_chat(system_prompt="Be brief.", model="tiny")
    renamed = store.update_chat(chat.id, title="Mine", tags=("x",))
    assert renamed == replace(chat, title="Mine", has_own_title=True, tags=("x",), version=1)
    changed = store.update_chat(chat.id, system_prompt=None, sampling=SamplingParams(seed=4))
    assert changed == replace(renamed, system_prompt=None, sampling=SamplingParams(seed=4), version=2)
    assert store.chat(chat.id) == changed


def test_an_empty_title_gives_the_first_line_back(store):
    chat = store.create_chat(title="Mine")
    assert store.update_chat(chat.id, title=" \n").title == "New chat"
    ask(store, chat.id, "Lisbon?\nIn May.")
    assert store.chat(chat.id).title == "Lisbon?"
    assert store.update_chat(chat.id, title="Mine").has_own_title
    restored = store.update_chat(chat.id, title="")
    assert (restored.title, restored.has_own_title) == ("Lisbon?", False)


@pytest.mark.parametrize("limit", [-1, 2**31, 10**30])
def test_a_limit_that_makes_no_sense_is_refused(store, limit):
    store.create_chat()
    for call in (store.chats, lambda limit: store.search("x", limit=limit)):
        with pytest.raises(InvalidParameter, match="the limit must be a whole number from 0 to"):
            call(limit=limit)
    assert store.chats(limit=0) == []


HALF = "\udcff"


@pytest.mark.parametrize(
    "call",
    [
        lambda store: store.chat(HALF),
        lambda store: store.create_chat(user=HALF),
        lambda store: store.chats(user=HALF),
        lambda store: store.tags(HALF),
        lambda store: store.search("x", user=HALF),
        lambda store: store.stats(HALF),
        lambda store: store.delete_chat(HALF),
        lambda store: store.message(10**30),
        lambda store: store.delete_message(-(10**30)),
    ],
)
def test_names_and_numbers_that_no_database_holds_are_refused_in_words(store, call):
    """An argument of a command line that isn't UTF-8 comes as half a character."""
    with pytest.raises(InvalidParameter, match=r"'\\udcff' isn't text: |a number is larger than the database can hold"):
        call(store)
    assert store.chats() == []


def test_what_people_write_is_kept_whatever_it_is(store):
    chat = store.create_chat(title=HALF, system_prompt=HALF, model=HALF, tags=[HALF])
    assert (chat.title, chat.system_prompt, chat.model, chat.tags) == ("\ufffd", "\ufffd", "\ufffd", ("\ufffd",))
    assert store.update_chat(chat.id, model=HALF + "b").model == "\ufffdb"


def test_two_screens_that_change_one_chat_overwrite_nothing_of_each_other(store):
    """C2: what is sent is what the person changed, never a whole chat as a stale screen knew it."""
    chat = store.create_chat()
    question, reply = ask(store, chat.id, "One?", "1")
    stale = store.version(chat.id)
    ask(store, chat.id, "Two?", "2", below=reply.id)  # the first screen goes on
    assert store.version(chat.id) > stale
    retry(store, question, "One!")  # the second one doesn't know yet
    store.update_chat(chat.id, title="Numbers")
    texts = [message.text for message in store.tree(chat.id)]
    assert texts == ["One?", "1", "Two?", "2", "One!"]
    assert store.chat(chat.id).title == "Numbers"


def test_every_change_to_a_chat_or_its_messages_counts_its_version_up(store):
    chat = store.create_chat()
    versions = [store.version(chat.id)]

    def changed() -> bool:
        versions.append(store.version(chat.id))
        return versions[-1] > versions[-2]

    turn = store.add_turn(chat.id, None, "Hello?", [SEEDED])
    reply_id = turn.replies[0].id
    assert changed()
    store.save_draft(reply_id, "Hel", (1,))
    assert changed()
    store.finish_reply(reply_id, text="Hello", token_ids=(1, 2), status="stopped", finish_reason="abort", cost=None)
    assert changed()
    store.reopen_reply(reply_id)
    assert changed()
    finish(store, reply_id)
    assert changed()
    store.update_chat(chat.id, is_pinned=True)
    assert changed()
    store.set_active_leaf(chat.id, turn.user_message.id)
    assert changed()
    store.delete_message(reply_id)
    assert changed()
    store.restore_message(chat.id, reply_id)
    assert changed()
    store.tree(chat.id)
    assert not changed()


def test_a_path_is_chosen_by_its_last_message(store):
    chat = store.create_chat()
    question, first = ask(store, chat.id, "One?", "1")
    second = retry(store, question, "One!")
    assert store.chat(chat.id).active_leaf_id == second.id
    assert store.set_active_leaf(chat.id, first.id).active_leaf_id == first.id
    other = store.create_chat()
    for message_id in (first.id, 999):
        with pytest.raises(MessageNotFound, match="open the chat again"):
            store.set_active_leaf(other.id, message_id)
    assert store.chat(other.id).active_leaf_id is None


@pytest.mark.parametrize(
    "call",
    [
        lambda store: store.chat("0" * 32),
        lambda store: store.update_chat("0" * 32, title="x"),
        lambda store: store.version("0" * 32),
        lambda store: store.tree("0" * 32),
        lambda store: store.add_turn("0" * 32, None, "x", []),
        lambda store: store.set_active_leaf("0" * 32, 1),
        lambda store: store.fork_chat("0" * 32, 1),
        lambda store: store.delete_chat("0" * 32),
        lambda store: store.restore_chat("0" * 32),
    ],
)
def test_a_chat_that_does_not_exist_is_an_error_in_words(store, call):
    with pytest.raises(ChatNotFound, match=r"there is no such chat|can't be brought back"):
        call(store)


# Presets


def test_presets_are_kept_by_name(store):
    store.save_system_prompt("terse", "Be brief.")
    store.save_system_prompt("kind", "Be kind.")
    store.save_system_prompt("terse", "Be very brief.")
    assert list(store.system_prompts().items()) == [("kind", "Be kind."), ("terse", "Be very brief.")]
    store.delete_system_prompt("kind")
    store.delete_system_prompt("never was")
    assert store.system_prompts() == {"terse": "Be very brief."}

    warm, cold = SamplingParams(temperature=1.2, stop=("a", "b")), SamplingParams()
    store.save_sampling_preset("warm", warm)
    store.save_sampling_preset("cold", cold)
    assert list(store.sampling_presets().items()) == [("cold", cold), ("warm", warm)]
    store.delete_sampling_preset("warm")
    store.save_sampling_preset("cold", warm)
    assert store.sampling_presets() == {"cold": warm}


# A store in memory


def test_a_temporary_chat_is_gone_with_its_store():
    with Store(":memory:") as store:
        chat = store.create_chat(title="secret")
        assert chat.is_temporary
        question, reply = ask(store, chat.id, "One?", "1")
        assert [question.id, reply.id] == [FIRST_TEMPORARY_MESSAGE_ID, FIRST_TEMPORARY_MESSAGE_ID + 1]
        assert [hit.chat.title for hit in store.search("secret")] == ["secret"]
        assert store.fork_chat(chat.id, reply.id).is_temporary
    with Store(":memory:") as store:
        assert store.chats() == []


# Threads


def test_many_threads_write_and_read_at_once(store):
    chats = [store.create_chat() for _ in range(4)]
    errors: list[BaseException] = []

    def talk(chat_id: str) -> None:
        try:
            below = None
            for number in range(10):
                _, reply = ask(store, chat_id, f"{number}?", f"{number}!", below=below)
                below = reply.id
                path = store.tree(chat_id).path(store.chat(chat_id).active_leaf_id)
                assert [message.text for message in path[::2]] == [f"{i}?" for i in range(number + 1)]
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=talk, args=(chat.id,)) for chat in chats]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert store.stats().num_messages == 80


def test_reading_waits_for_no_write(store):
    chat = store.create_chat(title="before")
    is_writing, may_commit = threading.Event(), threading.Event()

    def slow_write(connection) -> None:
        connection.execute("UPDATE chats SET title = 'after'")
        is_writing.set()
        assert may_commit.wait(PATIENCE_S)

    thread = threading.Thread(target=store._write, args=(slow_write,))
    thread.start()
    assert is_writing.wait(PATIENCE_S)
    assert store.chat(chat.id).title == "before"
    assert [hit.chat.id for hit in store.search("before")] == [chat.id]
    may_commit.set()
    thread.join()
    assert store.chat(chat.id).title == "after"
