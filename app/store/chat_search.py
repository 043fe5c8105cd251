"""Finds text in titles and messages.

A query is words between spaces. A hit contains each of them, wherever it stands and whatever its case; no sign has a
special meaning. Titles come first, then messages; of both the newest first. A reply is found once it is finished.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from sqlite3 import Connection, Row

from ..chats import Chat
from ..mended_text import mended
from . import chat_table

MAX_QUERY_LENGTH = 1000
MAX_WORDS = 32
# The index knows texts by their runs of three characters.
TRIGRAM = 3
# From so many places on, one or two characters are common.
MANY_PLACES = 10_000
SNIPPET_BEFORE, SNIPPET_AFTER = 40, 120
LAST_CHARACTER = chr(0x10FFFF)

_IS_FOUND = """
    messages.status <> 'draft' AND messages.deleted_by IS NULL AND chats.deleted_by IS NULL AND chats.user = :user
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchHit:
    """A place where a query was found.

    message_id: None where it is the chat's title.
    snippet: what stands around the first word found, in one line.
    highlights: [start, end) of each word found in the snippet, from left to right; they don't overlap.
    """

    chat: Chat
    message_id: int | None
    snippet: str
    highlights: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Word:
    """One word of a query, in the ways in which Unicode lets it be written: é is one character, or e and an accent."""

    forms: tuple[str, ...]

    @property
    def is_indexed(self) -> bool:
        """Whether the index can look for it; otherwise each text is looked at."""
        return all(len(form) >= TRIGRAM for form in self.forms)

    def trigrams_between(self, name: str) -> tuple[str, dict[str, str]]:
        """The condition on `term` for trigrams that begin with the word, and its values, whose names begin with `name`.

        A word of one or two characters is always the beginning of one: two line feeds stand after each text.
        """
        begins = [_folded(form[:TRIGRAM]) for form in self.forms]
        bounds = {f"{name}_{place}_from": begin for place, begin in enumerate(begins)}
        bounds |= {f"{name}_{place}_to": begin + LAST_CHARACTER for place, begin in enumerate(begins)}
        return " OR ".join(f"term BETWEEN :{name}_{i}_from AND :{name}_{i}_to" for i in range(len(begins))), bounds

    @property
    def match_expression(self) -> str:
        """As FTS5 asks for it: strings in quotes, in which nothing but a quote has a meaning."""
        return "(" + " OR ".join('"' + form.replace('"', '""') + '"' for form in self.forms) + ")"


class Query:
    """What a person typed, as words."""

    def __init__(self, text: str) -> None:
        written = mended(text[:MAX_QUERY_LENGTH]).split()
        self.words = [_word(written_word) for written_word in list(dict.fromkeys(written))[:MAX_WORDS]]
        self._patterns = [_pattern(word.forms) for word in self.words]
        self._any_word = _pattern(form for word in self.words for form in word.forms)

    @property
    def match_expression(self) -> str | None:
        """For what the index can look for; None if there is nothing of that kind."""
        return " AND ".join(word.match_expression for word in self.words if word.is_indexed) or None

    def is_in(self, text: str) -> bool:
        """Whether a text contains the words that the index can't look for; it has looked for the others."""
        return all(
            word.is_indexed or pattern.search(text) for word, pattern in zip(self.words, self._patterns, strict=True)
        )

    def snippet(self, text: str) -> tuple[str, tuple[tuple[int, int], ...]]:
        """What stands around the first word found, and the places of all words in it."""
        first = self._any_word.search(text)
        found_at, found_end = first.span() if first else (0, 0)
        start = max(0, found_at - SNIPPET_BEFORE)
        shown = text[start : max(found_end, found_at + SNIPPET_AFTER)]
        before = "…" if start else ""
        after = "…" if start + len(shown) < len(text) else ""
        places = (match.span() for match in self._any_word.finditer(shown))
        highlights = tuple((begin + len(before), end + len(before)) for begin, end in places)
        # White space is replaced sign by sign, so that places stay where they are.
        return before + re.sub(r"\s", " ", shown) + after, highlights


def search(connection: Connection, query_text: str, *, user: str, limit: int) -> list[SearchHit]:
    query = Query(query_text)
    if not query.words:
        return []
    found = _limited(query, _titles(connection, query, user), chat_table.checked_limit(limit))
    found += _limited(query, _messages(connection, query, user), limit - len(found))
    chats = {chat_id: chat_table.get(connection, chat_id) for chat_id in {row["chat_id"] for row in found}}
    hits = []
    for row in found:
        snippet, highlights = query.snippet(row["text"])
        hits.append(
            SearchHit(chat=chats[row["chat_id"]], message_id=row["message_id"], snippet=snippet, highlights=highlights)
        )
    return hits


def _limited(query: Query, candidates: Iterable[Row], limit: int) -> list[Row]:
    return list(islice((row for row in candidates if query.is_in(row["text"])), limit))


def _titles(connection: Connection, query: Query, user: str) -> Iterator[Row]:
    """Chats in whose titles the index finds the query, the newest first; all of a user's chats where it can't tell."""
    expression = query.match_expression
    matching = "" if expression is None else "number IN (SELECT rowid FROM title_search WHERE title_search MATCH ?) AND"
    return connection.execute(
        f"""
        SELECT id AS chat_id, NULL AS message_id, title AS text FROM chats
        WHERE {matching} user = ? AND deleted_by IS NULL ORDER BY updated_at DESC, number DESC
        """,
        (user,) if expression is None else (expression, user),
    )


def _messages(connection: Connection, query: Query, user: str) -> Iterator[Row]:
    """Messages that may hold the query, the newest first."""
    values: dict[str, str | None] = {"user": user, "expression": query.match_expression}
    source, order, conditions = "messages", "messages.id", [_IS_FOUND]
    if query.match_expression is not None:
        source = "message_search CROSS JOIN messages ON messages.id = message_search.rowid"
        order = "message_search.rowid"
        conditions.append("message_search MATCH :expression")
    for number, word in enumerate(query.words):
        if not word.is_indexed and not _is_common(connection, word):
            condition, bounds = word.trigrams_between(f"word{number}")
            conditions.append(f"messages.id IN (SELECT doc FROM message_trigrams WHERE {condition})")
            values |= bounds
    yield from connection.execute(
        f"""
        SELECT messages.chat_id AS chat_id, messages.id AS message_id, messages.text AS text
        FROM {source} CROSS JOIN chats ON chats.id = messages.chat_id
        WHERE {" AND ".join(conditions)} ORDER BY {order} DESC
        """,
        values,
    )


def _is_common(connection: Connection, word: Word) -> bool:
    """Whether a short word stands in so many places that looking at messages one by one soon finds some."""
    condition, bounds = word.trigrams_between("word")
    (num_places,) = connection.execute(
        f"SELECT count(*) FROM (SELECT 1 FROM message_trigrams WHERE {condition} LIMIT {MANY_PLACES})", bounds
    ).fetchone()
    return bool(num_places == MANY_PLACES)


def _word(written: str) -> Word:
    forms = (written, unicodedata.normalize("NFC", written), unicodedata.normalize("NFD", written))
    return Word(tuple(dict.fromkeys(forms)))


def _folded(text: str) -> str:
    """Without case as the index has it: one character for one, so a final sigma is a sigma, but ß isn't ss."""
    return "".join(folded if len(folded := character.casefold()) == 1 else character.lower() for character in text)


def _pattern(forms: Iterable[str]) -> re.Pattern[str]:
    # Of two words that begin alike the longer one is to be marked.
    return re.compile("|".join(map(re.escape, sorted(forms, key=len, reverse=True))), re.IGNORECASE)
