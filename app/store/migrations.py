"""The schema of the database of chats: numbered functions, each applied once, in order.

A migration that was released never changes; a new one is added below it, and a database of the schema before it joins
the fixtures in `tests/app/store/schemas`.

Times are whole microseconds since 1970, UTC. Lists and sampling parameters are JSON. Token ids are little-endian
32-bit numbers, one after the other; `token_logprobs.py` says how log probabilities are packed.
"""

from __future__ import annotations

from sqlite3 import Connection

from sqlite_utils import Database, Migrations

from .database import MIGRATION_SET

migrations = Migrations(MIGRATION_SET)


def migrate(connection: Connection, *, stop_before: str | None = None) -> None:
    """Applies the functions below that a database hasn't had, in the transaction that is open.

    stop_before: the name of the first one not to apply.
    """
    # Plugins of sqlite-utils that a person installed for other ends have no business with chats.
    migrations.apply(Database(connection, recursive_triggers=False, execute_plugins=False), stop_before=stop_before)


@migrations()
def m001_chats(db: Database) -> None:
    """Chats, and their messages as trees.

    chats.number: what the search index knows a chat by; of two chats of one time the greater is the newer.
    chats.deleted_by, messages.deleted_by: the store in which it was deleted; NULL is not deleted.
    messages.deleted_with: the topmost message of the branch that was deleted; its active_leaf_before is the chat's
        active leaf then, if it lay in the branch.
    messages.writer: the store that writes this reply, and its process; NULL once it is finished.
    """
    for statement in (
        """
        CREATE TABLE chats (
            number INTEGER PRIMARY KEY,
            id TEXT NOT NULL UNIQUE,
            user TEXT NOT NULL,
            title TEXT NOT NULL,
            has_own_title INTEGER NOT NULL,
            is_pinned INTEGER NOT NULL,
            is_archived INTEGER NOT NULL,
            tags TEXT NOT NULL,
            system_prompt TEXT,
            model TEXT,
            sampling TEXT NOT NULL,
            active_leaf_id INTEGER REFERENCES messages (id) ON DELETE SET NULL,
            version INTEGER NOT NULL DEFAULT 0,
            created_at INTEGER NOT NULL,
            updated_at INTEGER NOT NULL,
            deleted_by TEXT
        ) STRICT
        """,
        "CREATE INDEX chats_as_listed ON chats (user, is_pinned DESC, updated_at DESC, number DESC)",
        "CREATE INDEX chats_by_active_leaf ON chats (active_leaf_id)",
        # AUTOINCREMENT: the id of a message that is gone is never another's, so no stale screen can mean the wrong one.
        """
        CREATE TABLE messages (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            chat_id TEXT NOT NULL REFERENCES chats (id) ON DELETE CASCADE,
            parent_id INTEGER REFERENCES messages (id),
            role TEXT NOT NULL CHECK (role IN ('user', 'assistant')),
            text TEXT NOT NULL,
            model TEXT,
            sampling TEXT,
            num_cached_tokens INTEGER,
            num_computed_tokens INTEGER,
            num_generated_tokens INTEGER,
            ttft_ms REAL,
            tokens_per_s REAL,
            finish_reason TEXT,
            status TEXT NOT NULL CHECK (status IN ('draft', 'done', 'stopped', 'failed')),
            error TEXT,
            created_at INTEGER NOT NULL,
            writer TEXT,
            deleted_by TEXT,
            deleted_with INTEGER,
            active_leaf_before INTEGER,
            token_ids BLOB,
            CHECK (parent_id < id),
            CHECK (status <> 'draft' OR writer IS NOT NULL)
        ) STRICT
        """,
        "CREATE INDEX messages_by_chat ON messages (chat_id)",
        "CREATE INDEX messages_by_parent ON messages (parent_id)",
        "CREATE INDEX drafts ON messages (writer) WHERE status = 'draft'",
        "CREATE INDEX deleted_messages ON messages (deleted_with) WHERE deleted_with IS NOT NULL",
    ):
        db.execute(statement)


@migrations()
def m002_search(db: Database) -> None:
    """Full-text indexes of titles and of finished messages, kept up to date by triggers.

    The tokens are trigrams, so any part of a word of any script is found. The two line feeds after each text make every
    one or two characters of it the beginning of a trigram, which is how the index answers such short queries too
    (through `message_trigrams`). A draft is indexed once it is finished: it changes every second until then.
    """
    for statement in (
        """
        CREATE VIEW searchable_titles AS
        SELECT number, title || char(10, 10) AS text FROM chats
        """,
        """
        CREATE VIEW searchable_messages AS
        SELECT id, text || char(10, 10) AS text FROM messages WHERE status <> 'draft'
        """,
        """
        CREATE VIRTUAL TABLE title_search USING fts5 (
            text, content = 'searchable_titles', content_rowid = 'number', tokenize = 'trigram'
        )
        """,
        """
        CREATE VIRTUAL TABLE message_search USING fts5 (
            text, content = 'searchable_messages', content_rowid = 'id', tokenize = 'trigram'
        )
        """,
        "CREATE VIRTUAL TABLE message_trigrams USING fts5vocab (message_search, instance)",
        """
        CREATE TRIGGER title_added AFTER INSERT ON chats BEGIN
            INSERT INTO title_search (rowid, text) VALUES (new.number, new.title || char(10, 10));
        END
        """,
        """
        CREATE TRIGGER title_changed AFTER UPDATE OF title ON chats BEGIN
            INSERT INTO title_search (title_search, rowid, text)
                VALUES ('delete', old.number, old.title || char(10, 10));
            INSERT INTO title_search (rowid, text) VALUES (new.number, new.title || char(10, 10));
        END
        """,
        """
        CREATE TRIGGER title_removed AFTER DELETE ON chats BEGIN
            INSERT INTO title_search (title_search, rowid, text)
                VALUES ('delete', old.number, old.title || char(10, 10));
        END
        """,
        """
        CREATE TRIGGER message_added AFTER INSERT ON messages WHEN new.status <> 'draft' BEGIN
            INSERT INTO message_search (rowid, text) VALUES (new.id, new.text || char(10, 10));
        END
        """,
        # One trigger, since the order of two isn't defined, and the old text must go before the new one comes.
        """
        CREATE TRIGGER message_changed AFTER UPDATE OF text, status ON messages BEGIN
            INSERT INTO message_search (message_search, rowid, text)
                SELECT 'delete', old.id, old.text || char(10, 10) WHERE old.status <> 'draft';
            INSERT INTO message_search (rowid, text)
                SELECT new.id, new.text || char(10, 10) WHERE new.status <> 'draft';
        END
        """,
        """
        CREATE TRIGGER message_removed AFTER DELETE ON messages WHEN old.status <> 'draft' BEGIN
            INSERT INTO message_search (message_search, rowid, text)
                VALUES ('delete', old.id, old.text || char(10, 10));
        END
        """,
        "INSERT INTO title_search (title_search) VALUES ('rebuild')",
        "INSERT INTO message_search (message_search) VALUES ('rebuild')",
    ):
        db.execute(statement)


@migrations()
def m003_presets(db: Database) -> None:
    """System prompts and sampling settings that a person keeps under a name."""
    db.execute("CREATE TABLE system_prompts (name TEXT PRIMARY KEY, text TEXT NOT NULL) STRICT")
    db.execute("CREATE TABLE sampling_presets (name TEXT PRIMARY KEY, sampling TEXT NOT NULL) STRICT")


@migrations()
def m004_token_logprobs(db: Database) -> None:
    """How likely each token of a reply was, and its likeliest alternatives; a table of its own, for few look at them.

    num_top: alternatives of each token in `packed`.
    """
    db.execute(
        """
        CREATE TABLE token_logprobs (
            message_id INTEGER PRIMARY KEY REFERENCES messages (id) ON DELETE CASCADE,
            num_top INTEGER NOT NULL,
            packed BLOB NOT NULL
        ) STRICT
        """
    )


@migrations()
def m005_miss_reasons(db: Database) -> None:
    """Why a reply's prompt found no more in the cache, as JSON; a table of its own, for few look at them."""
    db.execute(
        """
        CREATE TABLE miss_reasons (
            message_id INTEGER PRIMARY KEY REFERENCES messages (id) ON DELETE CASCADE,
            reason TEXT NOT NULL
        ) STRICT
        """
    )


@migrations()
def m006_accepted_tokens(db: Database) -> None:
    """How many of a reply's tokens were guessed ahead; NULL for replies from before, of which none was."""
    db.execute("ALTER TABLE messages ADD COLUMN num_accepted_tokens INTEGER")


@migrations()
def m007_variants(db: Database) -> None:
    """The name and the system prompt of a reply that was asked for beside others of other settings, as JSON."""
    db.execute("ALTER TABLE messages ADD COLUMN variant TEXT")
