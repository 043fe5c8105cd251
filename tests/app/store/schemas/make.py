"""Makes `schema-N.db` beside this file, a small database of chats as the first N migrations leave it: make.py N.

Run once for each schema, before the migration after it is written: a file made later would prove nothing.
"""

import json
import math
import sqlite3
import struct
import sys
from pathlib import Path

from paged_chat.app.store.migrations import migrate, migrations

CHAT_ID = "c0ffee" + 26 * "0"


def make(number: int, path: Path) -> None:
    """A chat with a question, two replies and a deleted branch, and a draft of a process that is gone."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA page_size = 512")  # keeps the file small
    names = [migration.name for migration in migrations._migrations]
    migrate(connection, stop_before=dict(enumerate(names)).get(number))
    connection.execute(
        """
        INSERT INTO chats (id, user, title, has_own_title, is_pinned, is_archived, tags, system_prompt, model, sampling,
            version, created_at, updated_at)
        VALUES (?, '', 'Three days in Lisbon', 0, 1, 0, '["travel"]', 'Be brief.', 'tiny', '{"temperature":0.7}', 9,
            1790000000000000, 1790000001000000)
        """,
        (CHAT_ID,),
    )
    connection.executemany(
        """
        INSERT INTO messages (id, chat_id, parent_id, role, text, token_ids, sampling, num_cached_tokens,
            num_computed_tokens, num_generated_tokens, ttft_ms, tokens_per_s, finish_reason, status, writer, deleted_by,
            deleted_with, created_at)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 1790000000000000)
        """,
        [
            (1, CHAT_ID, None, "user", "Three days in Lisbon", *(None,) * 8, "done", None, None, None),
            (2, CHAT_ID, 1, "assistant", "Day one: Alfama.", b"\1\0\0\0\2\0\0\0", '{"seed":7}', 12, 5, 2, 48.5, 118.0,
             "stop", "done", None, None, None),
            (3, CHAT_ID, 1, "assistant", "Day one: the", b"\1\0\0\0", '{"seed":8}', *(None,) * 6, "draft", "1:0:0",
             None, None),
            (4, CHAT_ID, 1, "assistant", "Deleted.", b"\3\0\0\0", "{}", 17, 0, 1, 9.0, None, "stop", "done", None,
             "1:0:0", 4),
        ],
    )  # fmt: skip
    connection.execute("UPDATE chats SET active_leaf_id = 2")
    if number >= 3:
        connection.execute("INSERT INTO system_prompts VALUES ('terse', 'Be brief.')")
        connection.execute("INSERT INTO sampling_presets VALUES ('warm', '{\"temperature\":1.2}')")
    if number >= 4:
        kept = struct.pack("<e2I2e", -0.5, 1, 7, -0.5, -1.0) + struct.pack("<e2I2e", -2.0, 7, 0, -0.25, math.nan)
        connection.execute("INSERT INTO token_logprobs VALUES (2, 2, ?)", (kept,))
    if number >= 5:
        reason = {"cause": "evicted", "num_prompt_tokens": 17, "num_cached_tokens": 12, "num_cached_blocks": 0,
                  "token_index": 12, "block_index": 0, "text": "Lisbon", "num_evicted_tokens": 5}  # fmt: skip
        connection.execute("INSERT INTO miss_reasons VALUES (2, ?)", (json.dumps(reason),))
    if number >= 6:
        connection.execute("UPDATE messages SET num_accepted_tokens = 1 WHERE id = 2")
    if number >= 7:
        connection.execute('UPDATE messages SET variant = \'{"name":"seven"}\' WHERE id = 2')
    connection.execute("PRAGMA journal_mode = WAL")
    connection.close()


if __name__ == "__main__":
    wanted = int(sys.argv[1])
    make(wanted, Path(__file__).with_name(f"schema-{wanted}.db"))
