"""The file of the chats: private, shared by processes, and never lost by what goes wrong with it."""

import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import textwrap
from contextlib import closing
from pathlib import Path

import pytest

from paged_chat.app.errors import DiskFull, StoreBusy, StoreDamaged, StoreUnavailable
from paged_chat.app.store import database
from paged_chat.app.store.store import Store, default_path
from patience import PATIENCE_S
from turns import SEEDED, ask, finish


def files_beside(path):
    """Names and contents of everything in a folder."""
    return {file.name: file.read_bytes() for file in path.parent.iterdir()}


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_chats_are_nobody_elses_to_read(home):
    path = default_path()
    assert path == home / "chats.db"
    previous = os.umask(0)
    try:
        with Store(path) as store:
            store.create_chat()
            assert mode(home) == 0o700
            assert {file.name: mode(file) for file in home.iterdir()} == {
                "chats.db": 0o600, "chats.db-wal": 0o600, "chats.db-shm": 0o600,
            }  # fmt: skip
    finally:
        os.umask(previous)


def test_a_closed_store_is_one_file(store, home):
    store.create_chat(title="Kept")
    store.close()
    store.close()  # a second time does nothing
    assert [file.name for file in home.iterdir()] == ["chats.db"]
    with Store(home / "chats.db") as again:
        assert [chat.title for chat in again.chats()] == ["Kept"]


def test_a_closed_store_says_so(store):
    chat = store.create_chat()
    store.close()
    with pytest.raises(StoreUnavailable, match="closed already"):
        store.create_chat()
    with pytest.raises(StoreUnavailable, match="closed already"):
        store.chat(chat.id)


@pytest.mark.parametrize("name", ["chats 100%.db", "a?b#c.db", "日本.db", "it's.db"])
def test_any_file_name_will_do(tmp_path, name):
    path = tmp_path / "folder?" / name
    for _ in range(2):
        with Store(path) as store:
            store.create_chat()
    with Store(path) as store:
        assert len(store.chats()) == 2
    assert [file.name for file in path.parent.iterdir()] == [name]


def test_a_full_disk_loses_nothing_and_saving_can_be_tried_again(store):
    chat = store.create_chat()
    _, reply = ask(store, chat.id, "Hello?")
    [draft] = store.add_turn(chat.id, reply.id, "A long one, please.", [SEEDED]).replies
    before = list(store.tree(chat.id))

    def set_limit(connection, num_pages):
        return connection.execute(f"PRAGMA max_page_count = {num_pages}").fetchone()

    store._write(lambda connection: set_limit(connection, 1))  # as many as there are
    with pytest.raises(DiskFull, match=r"chats\.db is full; nothing was saved now: make space and try again"):
        finish(store, draft.id, "long " * 10_000)
    with pytest.raises(DiskFull):
        ask(store, chat.id, "long " * 10_000)
    assert list(store.tree(chat.id)) == before

    store._write(lambda connection: set_limit(connection, 2**30))
    assert finish(store, draft.id, "long " * 10_000).text == "long " * 10_000


def test_a_locked_database_loses_nothing_and_saving_can_be_tried_again(store, monkeypatch):
    monkeypatch.setattr(database, "BUSY_TIMEOUT_S", 0.05)
    with Store(store.path) as impatient, closing(sqlite3.connect(store.path)) as other:
        chat = impatient.create_chat()
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(
            StoreBusy, match=r"another program .* nothing was saved now: close that program, or try again"
        ):
            ask(impatient, chat.id, "Hello?")
        assert len(impatient.tree(chat.id)) == 0  # reading goes on
        other.execute("ROLLBACK")
        ask(impatient, chat.id, "Hello?")
        assert len(impatient.tree(chat.id)) == 2


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_file_that_may_not_be_written_is_an_error_in_words(store):
    store.close()
    store.path.chmod(0o400)
    with pytest.raises(StoreUnavailable, match="rights to the file and its folder"):
        Store(store.path)


@pytest.mark.parametrize("comes_instead", [True, False])
def test_nothing_is_written_where_the_file_was_taken_away(store, home, comes_instead):
    chat = store.create_chat(title="Here")
    store.path.rename(home / "elsewhere.db")
    if comes_instead:
        store.path.write_bytes(b"")
    for call in (lambda: store.create_chat(title="Lost"), lambda: store.chat(chat.id), store.chats):
        with pytest.raises(StoreUnavailable, match=r"chats\.db was moved, deleted or replaced while it was open"):
            call()
    # Put back, it goes on.
    (home / "elsewhere.db").rename(store.path)
    store.create_chat(title="Kept")
    assert [chat.title for chat in store.chats()] == ["Kept", "Here"]


def test_a_folder_that_can_not_be_made_is_an_error_in_words(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(StoreUnavailable, match="file isn't a folder: give another one with --home"):
        Store(tmp_path / "file" / "chats.db")
    with pytest.raises(StoreUnavailable, match=r"can't be reached \(Not a directory\): give another folder"):
        Store(tmp_path / "file" / "folder" / "chats.db")
    with pytest.raises(StoreUnavailable, match=r"can't be reached \(Is a directory\): give another folder"):
        Store(tmp_path)


@pytest.mark.parametrize(
    ("code", "says"),
    [(sqlite3.SQLITE_IOERR_FSYNC, "disk I/O error"), (sqlite3.SQLITE_READONLY, "attempt to write a readonly database")],
)
def test_what_the_system_refuses_is_an_error_in_words(code, says):
    error = sqlite3.OperationalError(says)
    error.sqlite_errorcode = code
    with (
        pytest.raises(StoreUnavailable, match=rf"chats\.db can't be read or saved \({says}\): look at the disk"),
        database.errors_in_words(Path("chats.db")),
    ):
        raise error


@pytest.mark.parametrize("num_pages", [1, 1000])
def test_what_is_not_a_database_is_refused_and_left_alone(tmp_path, num_pages):
    path = tmp_path / "chats.db"
    path.write_text("Dear diary, " * num_pages)
    before = files_beside(path)
    with pytest.raises(
        StoreDamaged, match=r"chats\.db is damaged or isn't a database; nothing was written: put a copy"
    ):
        Store(path)
    assert files_beside(path) == before


def test_a_database_of_something_else_is_refused_and_left_alone(tmp_path):
    path = tmp_path / "chats.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE chats (recipe TEXT)")
    before = files_beside(path)
    with pytest.raises(StoreDamaged, match="not one of paged-chat; nothing was changed"):
        Store(path)
    assert files_beside(path) == before


def test_a_damaged_database_is_an_error_and_never_an_empty_list(store):
    chat = store.create_chat()
    for number in range(20):
        ask(store, chat.id, f"{number}?", "word " * 500)
    store.close()
    with store.path.open("r+b") as file:
        size = file.seek(0, os.SEEK_END)
        for page in range(2, size // 4096):  # all but the first two, which hold the schema
            file.seek(page * 4096)
            file.write(b"\xff" * 4096)
    damaged = store.path.read_bytes()
    with pytest.raises(StoreDamaged, match="is damaged"), Store(store.path) as again:
        again.tree(chat.id)
    assert store.path.read_bytes() == damaged


def test_an_old_sqlite_is_refused(monkeypatch, home):
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 31, 1))
    monkeypatch.setattr(sqlite3, "sqlite_version", "3.31.1")
    with pytest.raises(StoreUnavailable, match=r"need SQLite 3\.37\.0 or newer, and this Python has 3\.31\.1"):
        Store(default_path())
    assert list(home.iterdir()) == []


WRITE = textwrap.dedent("""
    import sys
    from pathlib import Path

    sys.modules["pandas"] = None  # sqlite-utils looks for it, and finding it takes longer than all else
    from paged_chat.app.store import database
    from paged_chat.app.store.store import Store

    path, name, database.BUSY_TIMEOUT_S = Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])
    sys.stdin.readline()  # all start at once
    with Store(path) as store:
        chat = store.create_chat(title=name)
        below = None
        for number in range(20):
            below = store.add_turn(chat.id, below, f"{name} {number}", []).user_message.id
""")


def test_processes_that_make_and_write_one_file_at_once_lose_nothing(home):
    names = ["one", "two", "three"]
    writers = [
        subprocess.Popen(command, stdin=subprocess.PIPE, text=True)
        for command in ([sys.executable, "-c", WRITE, default_path(), name, str(PATIENCE_S)] for name in names)
    ]
    for writer in writers:
        writer.stdin.write("go\n")
        writer.stdin.flush()
    for writer in writers:
        writer.communicate(timeout=PATIENCE_S)
    assert [writer.returncode for writer in writers] == [0, 0, 0]
    with Store(default_path()) as store:
        chats = {chat.title: chat for chat in store.chats()}
        assert sorted(chats) == sorted(names)
        for name, chat in chats.items():
            path = store.tree(chat.id).path(chat.active_leaf_id)
            assert [message.text for message in path] == [f"{name} {number}" for number in range(20)]
    assert [file.name for file in home.iterdir()] == ["chats.db"]


def test_a_copy_beside_an_open_store_can_be_opened(store, tmp_path):
    """What people do for safety: copy the three files."""
    chat = store.create_chat()
    ask(store, chat.id, "Hello?")
    copy = tmp_path / "copy"
    shutil.copytree(store.path.parent, copy)
    with Store(copy / "chats.db") as copied:
        assert [message.text for message in copied.tree(chat.id)] == ["Hello?", "Yes."]
