"""Opens the file that holds the chats: private, of a schema that this version knows, with errors in words."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from paged_chat.engine.errors import InvalidParameter

from ..errors import DiskFull, StoreBusy, StoreDamaged, StoreTooNew, StoreUnavailable

# The number of the last function in migrations.py, and the name under which a database keeps those that it has had.
SCHEMA_VERSION = 7
MIGRATION_SET = "paged-chat"

IN_MEMORY: Literal[":memory:"] = ":memory:"
StorePath = Path | Literal[":memory:"]

BUSY_TIMEOUT_S = 10.0
# The first with STRICT tables.
OLDEST_SQLITE = (3, 37, 0)
PRIVATE_FOLDER, PRIVATE_FILE = 0o700, 0o600
REMEDY = "put a copy of yours in its place, or move it away to start afresh"
# What every database begins with. SQLite takes a file too short to be one for an empty one, and writes over it.
HEADER = b"SQLite format 3\0"


def open_database(path: StorePath) -> sqlite3.Connection:
    """The database at a path, made where there is none, of the current schema; an older one is backed up first.

    Raises StoreTooNew, StoreDamaged, StoreBusy, DiskFull or StoreUnavailable; of the first two nothing was written.
    """
    with errors_in_words(path):
        if sqlite3.sqlite_version_info < OLDEST_SQLITE:
            oldest = ".".join(map(str, OLDEST_SQLITE))
            raise StoreUnavailable(
                f"chats need SQLite {oldest} or newer, and this Python has {sqlite3.sqlite_version}: use a newer Python"
            )
        if path != IN_MEMORY:
            _make_private(path)
            _refuse_what_isnt_ours(path)
        connection = connect(path)
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            # A message that was saved survives a power cut too, for one fsync a commit.
            connection.execute("PRAGMA synchronous = FULL")
            _migrate(connection, path)
        except BaseException:
            connection.close()
            raise
        return connection


def look_at(path: Path) -> None:
    """Raises as `open_database` does for a file that it would refuse; writes nothing, and takes none for a good one.

    Every page is looked at too, which `open_database` leaves to whoever reads it: it takes as long as reading the file.
    """
    if os.path.exists(path):
        with errors_in_words(path):
            _refuse_what_isnt_ours(path, in_full=True)


def connect(path: StorePath, *, mode: str = "rw") -> sqlite3.Connection:
    """A connection that any one thread at a time may use; transactions are begun and ended in so many words.

    mode: "rw", or "ro", or "ro&immutable=1", which leaves no trace but doesn't see what is in the write-ahead log.
    """
    name = path if path == IN_MEMORY else f"{path.absolute().as_uri()}?mode={mode}"
    connection = sqlite3.connect(
        name, uri=path != IN_MEMORY, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
    )
    connection.row_factory = sqlite3.Row
    connection.execute("PRAGMA foreign_keys = ON")
    return connection


def schema_version(connection: sqlite3.Connection) -> int:
    """The number of the newest migration that a database has had, one of a later version of this program too.

    0 is a database without any of our tables.
    """
    if not connection.execute("SELECT 1 FROM sqlite_schema WHERE name = '_sqlite_migrations'").fetchone():
        return 0
    applied = connection.execute("SELECT name FROM _sqlite_migrations WHERE migration_set = ?", (MIGRATION_SET,))
    return max((int(name[1:4]) for (name,) in applied), default=0)


@contextmanager
def write_transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Commits what is done inside, or nothing of it.

    It has the write lock from the start. One that reads first and asks for the lock later, as sqlite-utils' outermost
    `db.atomic()` does, fails without waiting where another process wrote in between.
    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.commit()
    except BaseException:
        connection.rollback()
        raise


@contextmanager
def errors_in_words(path: StorePath) -> Iterator[None]:
    """Turns what the system or SQLite says about a database into an error that says what to do."""
    try:
        yield
    except OSError as error:
        raise StoreUnavailable(
            f"the chats in {path} can't be reached ({error.strerror or error}): give another folder with --home"
        ) from error
    except UnicodeEncodeError as error:  # what people write is mended before it is kept; names and ids aren't
        raise InvalidParameter(f"{error.object!a:.60} isn't text: it has half a character in it") from error
    except OverflowError as error:
        raise InvalidParameter(f"a number is larger than the database can hold ({error})") from error
    except sqlite3.DatabaseError as error:
        primary_code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
        if primary_code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise StoreBusy(
                f"another program has been writing to {path} for {BUSY_TIMEOUT_S:g} seconds; nothing was saved now: "
                "close that program, or try again"
            ) from error
        if primary_code == sqlite3.SQLITE_FULL:
            raise DiskFull(
                f"the disk that holds {path} is full; nothing was saved now: make space and try again"
            ) from error
        if primary_code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            raise StoreDamaged(
                f"{path} is damaged or isn't a database ({error}); nothing was written: {REMEDY}"
            ) from error
        if primary_code in (
            sqlite3.SQLITE_CANTOPEN,
            sqlite3.SQLITE_IOERR,
            sqlite3.SQLITE_PERM,
            sqlite3.SQLITE_READONLY,
        ):
            raise StoreUnavailable(
                f"the chats in {path} can't be read or saved ({error}): look at the disk and at the rights to the file "
                "and its folder, or give another one with --home"
            ) from error
        raise


def backups_folder(path: Path) -> Path:
    """Where a database is copied before it is migrated."""
    return path.parent / "backups"


def _make_private(path: Path) -> None:
    """The folder and the file, for nobody else to read, where they are new."""
    try:
        path.parent.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
    except FileExistsError as error:
        raise StoreUnavailable(f"{path.parent} isn't a folder: give another one with --home") from error
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, PRIVATE_FILE))


def _refuse_what_isnt_ours(path: Path, *, in_full: bool = False) -> None:
    """Looks at the schema and writes nothing, not even the files that SQLite lays beside a database that it opens."""
    with path.open("rb") as file:
        begins = file.read(len(HEADER))
    if begins and begins != HEADER:
        raise StoreDamaged(f"{path} is damaged or isn't a database; nothing was written: {REMEDY}")
    # What a killed process left in its log may be the very migration that makes the database too new. To read that, the
    # log's index is needed; both are there already then.
    has_log = path.with_name(f"{path.name}-wal").exists()
    with closing(connect(path, mode="ro" if has_log else "ro&immutable=1")) as connection:
        version = schema_version(connection)
        if version > SCHEMA_VERSION:
            raise StoreTooNew(
                f"{path} was written by a newer version of paged-chat: its schema is {version}, this version knows "
                f"{SCHEMA_VERSION}; nothing was changed: update paged-chat, or give another folder with --home"
            )
        if version == 0 and connection.execute("SELECT 1 FROM sqlite_schema").fetchone():
            raise StoreDamaged(f"{path} is a database, but not one of paged-chat; nothing was changed: move it away")
        if in_full and (fault := connection.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
            raise StoreDamaged(f"{path} is damaged ({fault}); nothing was written: {REMEDY}")


def _migrate(connection: sqlite3.Connection, path: StorePath) -> None:
    if schema_version(connection) == SCHEMA_VERSION:
        return
    # Only now: sqlite-utils imports pandas where that is installed, which takes longer than all else.
    from .migrations import migrate

    # Two processes may find the same old schema; the second one waits here and then finds the new one.
    with write_transaction(connection):
        version = schema_version(connection)
        if path != IN_MEMORY and 0 < version < SCHEMA_VERSION:
            _back_up(path, version)
        migrate(connection)


def _back_up(path: Path, version: int) -> None:
    folder = backups_folder(path)
    folder.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
    backup = folder / f"{path.stem}-schema-{version}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}{path.suffix}"
    unfinished = backup.with_suffix(".unfinished")
    _make_private(unfinished)
    # A connection of its own: the one that migrates is in a transaction, and this one sees what was committed before.
    try:
        with closing(connect(path, mode="ro")) as source, closing(connect(unfinished)) as copy:
            source.backup(copy)
        unfinished.replace(backup)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
