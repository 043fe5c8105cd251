"""Log probabilities of replies' tokens in the database: each function is part of one reading or one transaction.

Of each token, one after the other and all little-endian: its own log probability, a 16-bit float, then the ids of its
likeliest alternatives, 32 bits each, and their log probabilities, 16-bit floats. What is missing is not a number. That
is 2 + 6k bytes a token, and a probability within 1 % of itself down to one in a million.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from sqlite3 import Connection
from struct import Struct

from paged_chat.engine.request import TokenLogprobs

from ..chats import KeptLogprobs
from .rows import token_ids_from

MISSING = math.nan
LEAST = -65504.0  # the lowest number that 16 bits hold; a probability of 0 all the same


def save(connection: Connection, message_id: int, logprobs: Sequence[TokenLogprobs | None]) -> None:
    """Keeps those of a message in place of what was kept before; without any, nothing is kept."""
    if not any(logprobs):
        connection.execute("DELETE FROM token_logprobs WHERE message_id = ?", (message_id,))
        return
    num_top = max(len(one.top) for one in logprobs if one is not None)
    connection.execute(
        "INSERT OR REPLACE INTO token_logprobs (message_id, num_top, packed) VALUES (?, ?, ?)",
        (message_id, num_top, _packed(logprobs, num_top)),
    )


def get(connection: Connection, message_id: int) -> KeptLogprobs:
    """One for each token of a message; empty where none was kept."""
    row = connection.execute(
        """
        SELECT token_ids, num_top, packed FROM token_logprobs JOIN messages ON messages.id = message_id
        WHERE message_id = ?
        """,
        (message_id,),
    ).fetchone()
    if row is None:
        return ()
    kept = _record(row["num_top"]).iter_unpack(row["packed"])
    return tuple(
        None if math.isnan(numbers[0]) else _from_numbers(token_id, numbers)
        for token_id, numbers in zip(token_ids_from(row["token_ids"]) or (), kept, strict=True)
    )


def copy(connection: Connection, message_id: int, copy_id: int) -> None:
    """Keeps for one message what is kept for another."""
    connection.execute(
        """
        INSERT INTO token_logprobs (message_id, num_top, packed)
        SELECT ?, num_top, packed FROM token_logprobs WHERE message_id = ?
        """,
        (copy_id, message_id),
    )


def _record(num_top: int) -> Struct:
    return Struct(f"<e{num_top}I{num_top}e")


def _packed(logprobs: Sequence[TokenLogprobs | None], num_top: int) -> bytes:
    pack = _record(num_top).pack
    nothing = pack(MISSING, *[0] * num_top, *[MISSING] * num_top)
    return b"".join(nothing if one is None else pack(*_numbers(one, num_top)) for one in logprobs)


def _numbers(one: TokenLogprobs, num_top: int) -> list[float]:
    num_missing = num_top - len(one.top)
    ids = [token_id for token_id, _ in one.top] + [0] * num_missing
    return [max(one.logprob, LEAST), *ids, *(max(value, LEAST) for _, value in one.top), *[MISSING] * num_missing]


def _from_numbers(token_id: int, numbers: tuple[float, ...]) -> TokenLogprobs:
    num_top = len(numbers) // 2
    pairs = zip(numbers[1 : num_top + 1], numbers[num_top + 1 :], strict=True)
    return TokenLogprobs(
        token_id, numbers[0], tuple((int(top_id), value) for top_id, value in pairs if not math.isnan(value))
    )
