"""Databases of other versions: older ones are copied and brought up to date, newer ones are left alone (C6)."""

import shutil
import signal
import sqlite3
import subprocess
import sys
import textwrap
from contextlib import closing
from pathlib import Path

import pytest

from paged_chat.app.chats import ReplyCost, ReplyVariant
from paged_chat.app.errors import DiskFull, StoreTooNew
from paged_chat.app.store import database, migrations
from paged_chat.app.store.database import SCHEMA_VERSION
from paged_chat.app.store.rows import sampling_to_db
from paged_chat.app.store.store import Store
from paged_chat.app.transcript.miss_reason import MissReason
from paged_chat.engine.request import SamplingParams, TokenLogprobs

EVICTED = MissReason(
    cause="evicted",
    num_prompt_tokens=17,
    num_cached_tokens=12,
    num_cached_blocks=0,
    token_index=12,
    block_index=0,
    text="Lisbon",
    num_evicted_tokens=5,
)
SCHEMAS = Path(__file__).parent / "schemas"
CHAT_ID = "c0ffee" + 26 * "0"
KEPT = (TokenLogprobs(1, -0.5, ((1, -0.5), (7, -1.0))), TokenLogprobs(2, -2.0, ((7, -0.25),)))


def copy_of_schema(number, folder):
    folder.mkdir(parents=True, exist_ok=True)
    return Path(shutil.copy(SCHEMAS / f"schema-{number}.db", folder / "chats.db"))


def contents(path):
    """Every table, index and trigger of ours, and every row of the tables."""
    with closing(sqlite3.connect(path)) as connection:
        schema = connection.execute(
            "SELECT type, name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite!_%' ESCAPE '!' ORDER BY type, name"
        ).fetchall()
        tables = [name for kind, name, sql in schema if kind == "table" and "VIRTUAL" not in sql]
        return schema, {name: connection.execute(f'SELECT * FROM "{name}"').fetchall() for name in tables}


def files_in(folder):
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}


def test_the_number_of_the_schema_is_that_of_the_last_migration():
    names = [migration.name for migration in migrations.migrations._migrations]
    assert [int(name[1:4]) for name in names] == list(range(1, SCHEMA_VERSION + 1))
    assert all(name[0] == "m" and name[4] == "_" for name in names)


def test_there_is_a_database_of_every_schema():
    assert sorted(file.name for file in SCHEMAS.glob("*.db")) == [
        f"schema-{n}.db" for n in range(1, SCHEMA_VERSION + 1)
    ]


@pytest.mark.parametrize("number", range(1, SCHEMA_VERSION + 1))
def test_a_database_of_every_schema_opens_with_all_that_it_holds(number, tmp_path):
    path = copy_of_schema(number, tmp_path)
    with Store(path) as store:
        [chat] = store.chats()
        assert (chat.id, chat.title, chat.tags, chat.version) == (CHAT_ID, "Three days in Lisbon", ("travel",), 9)
        assert (chat.is_pinned, chat.sampling) == (True, SamplingParams(temperature=0.7))
        assert chat.created_at.isoformat() == "2026-09-21T14:13:20+00:00"
        question, reply, draft = store.tree(CHAT_ID).path(2) + store.tree(CHAT_ID).children(1)[1:]
        assert (question.text, reply.text, draft.text) == ("Three days in Lisbon", "Day one: Alfama.", "Day one: the")
        assert (reply.token_ids, reply.sampling, reply.finish_reason) == ((1, 2), SamplingParams(seed=7), "stop")
        assert reply.cost == ReplyCost(
            num_cached_tokens=12,
            num_computed_tokens=5,
            num_generated_tokens=2,
            ttft_ms=48.5,
            tokens_per_s=118.0,
            num_accepted_tokens=1 if number >= 6 else 0,
        )
        assert reply.variant == (ReplyVariant("seven") if number >= 7 else None)
        assert store.stop_orphaned_drafts() == 1
        assert [hit.message_id for hit in store.search("lisbon")] == [None, 1]
        assert [hit.message_id for hit in store.search("day one")] == [3, 2]
        assert store.system_prompts() == ({"terse": "Be brief."} if number >= 3 else {})
        assert store.sampling_presets() == ({"warm": SamplingParams(temperature=1.2)} if number >= 3 else {})
        assert store.token_logprobs(2) == (KEPT if number >= 4 else ())
        assert store.miss_reason(2) == (EVICTED if number >= 5 else None)


def test_an_upgraded_database_has_the_schema_of_a_new_one(tmp_path):
    with Store(tmp_path / "new" / "chats.db"):
        pass
    new_schema, _ = contents(tmp_path / "new" / "chats.db")
    for number in range(1, SCHEMA_VERSION + 1):
        path = copy_of_schema(number, tmp_path / str(number))
        with Store(path):
            pass
        assert contents(path)[0] == new_schema


@pytest.mark.parametrize("number", range(1, SCHEMA_VERSION))
def test_an_older_database_is_copied_before_it_is_migrated(number, tmp_path):
    path = copy_of_schema(number, tmp_path)
    before = contents(path)
    with Store(path):
        pass
    [backup] = (tmp_path / "backups").iterdir()
    assert backup.name.startswith(f"chats-schema-{number}-2")
    assert backup.suffix == ".db"
    assert contents(backup) == before
    assert backup.stat().st_mode & 0o777 == 0o600
    assert backup.parent.stat().st_mode & 0o777 == 0o700
    with Store(path):
        pass
    assert list((tmp_path / "backups").iterdir()) == [backup]  # nothing to migrate any more


def test_a_new_database_needs_no_copy(tmp_path):
    for _ in range(2):
        with Store(tmp_path / "chats.db"):
            pass
    assert [file.name for file in tmp_path.iterdir()] == ["chats.db"]


def test_a_migration_that_fails_leaves_the_older_database(tmp_path, monkeypatch):
    path = copy_of_schema(1, tmp_path)
    before = contents(path)

    def fail(connection):
        migrations.migrations.apply(migrations.Database(connection), stop_before="m003_presets")
        raise sqlite3.OperationalError("no more space")

    with monkeypatch.context() as patch:
        patch.setattr(migrations, "migrate", fail)
        with pytest.raises(sqlite3.OperationalError, match="no more space"):
            Store(path)
    assert contents(path) == before
    with Store(path) as store:
        assert len(store.tree(CHAT_ID)) == 3


def test_without_a_copy_nothing_is_migrated(tmp_path, monkeypatch):
    path = copy_of_schema(1, tmp_path)
    before = contents(path)
    connect = database.connect

    def connect_to_a_full_disk(path, **options):
        connection = connect(path, **options)
        if path.suffix == ".unfinished":
            connection.execute("PRAGMA page_size = 512")
            connection.execute("PRAGMA max_page_count = 4")
        return connection

    with monkeypatch.context() as patch:
        patch.setattr(database, "connect", connect_to_a_full_disk)
        with pytest.raises(DiskFull):
            Store(path)
    assert contents(path) == before
    assert list((tmp_path / "backups").iterdir()) == []


NEWER = textwrap.dedent("""
    import os, signal, sqlite3, sys
    from pathlib import Path

    sys.modules["pandas"] = None  # sqlite-utils looks for it, and finding it takes longer than all else
    from paged_chat.app.store.store import Store

    Store(Path(sys.argv[1])).close()
    connection = sqlite3.connect(sys.argv[1])
    connection.execute(
        "INSERT INTO _sqlite_migrations (migration_set, name, applied_at) VALUES ('paged-chat', 'm008_x', '')"
    )
    connection.commit()
    if sys.argv[2] == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    connection.close()
""")


@pytest.mark.parametrize(
    ("end", "files"),
    [("closed", ["chats.db"]), ("killed", ["chats.db", "chats.db-shm", "chats.db-wal"])],
)
def test_a_newer_database_is_refused_and_nothing_is_written(end, files, tmp_path):
    """C6; also where the newer version was killed, and what makes the database too new is in its log alone."""
    path = tmp_path / "chats.db"
    newer = subprocess.run([sys.executable, "-c", NEWER, path, end], check=False)
    assert newer.returncode == (-signal.SIGKILL if end == "killed" else 0)
    before = files_in(tmp_path)
    assert sorted(before) == files

    with pytest.raises(StoreTooNew) as refused:
        Store(path)
    assert str(refused.value) == (
        f"{path} was written by a newer version of paged-chat: its schema is 8, this version knows 7; nothing was "
        "changed: update paged-chat, or give another folder with --home"
    )
    after = files_in(tmp_path)
    assert sorted(after) == files
    for name in ("chats.db", "chats.db-wal"):  # the third file is scratch memory that processes share
        assert after.get(name) == before.get(name)


def test_a_default_that_changes_needs_a_migration():
    """What equals the defaults of SamplingParams isn't written down, so they must stay what they were."""
    assert SamplingParams() == SamplingParams(
        temperature=0.0, top_k=0, top_p=1.0, min_p=0.0, repetition_penalty=1.0, presence_penalty=0.0,
        frequency_penalty=0.0, max_tokens=512, n=1, seed=None, stop=(), stop_token_ids=(), ignore_eos=False,
        logprobs=None,
    )  # fmt: skip
    assert sampling_to_db(SamplingParams()) == "{}"
    assert sampling_to_db(SamplingParams(seed=7, stop=("é",))) == '{"seed":7,"stop":["\\u00e9"]}'
