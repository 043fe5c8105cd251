"""Why replies' prompts found no more in the cache: each function is part of one reading or one transaction."""

from __future__ import annotations

import json
from sqlite3 import Connection

from ..transcript.miss_reason import MissReason


def save(connection: Connection, message_id: int, reason: MissReason | None) -> None:
    """Keeps it in place of what was kept before; None leaves that as it is."""
    if reason is not None:
        connection.execute(
            "INSERT OR REPLACE INTO miss_reasons (message_id, reason) VALUES (?, ?)",
            (message_id, json.dumps(reason.to_keep(), sort_keys=True, separators=(",", ":"))),
        )


def get(connection: Connection, message_id: int) -> MissReason | None:
    """None where none was kept."""
    row = connection.execute("SELECT reason FROM miss_reasons WHERE message_id = ?", (message_id,)).fetchone()
    return None if row is None else MissReason.kept(json.loads(row["reason"]))


def copy(connection: Connection, message_id: int, copy_id: int) -> None:
    """Keeps for one message what is kept for another."""
    connection.execute(
        "INSERT INTO miss_reasons (message_id, reason) SELECT ?, reason FROM miss_reasons WHERE message_id = ?",
        (copy_id, message_id),
    )
