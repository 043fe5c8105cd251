"""Reads the fields of a decoded JSON object, each checked, and names the place of a fault."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn, TypeVar

from ..errors import ImportRefused
from ..mended_text import mended

Value = TypeVar("Value")

MAX_SHOWN_CHARS = 60
PLAIN_NAME = re.compile(rf"[\w\-\[\]]{{1,{MAX_SHOWN_CHARS}}}", re.ASCII)
MAX_WHOLE = 2**63 - 1  # what SQLite keeps
MAX_TOKEN_ID = 2**31 - 1
FIRST_MOMENT = datetime.min.replace(tzinfo=UTC) + timedelta(days=1)
LAST_MOMENT = datetime.max.replace(tzinfo=UTC) - timedelta(days=1)
CONTROLS = re.compile("[\x7f-\x9f]")  # those that JSON writes as they are, and terminals obey


class Fields:
    """One object of a file, and where in the file it stands: `chats[3].messages[7]`.

    A method gives the field of that name, and raises ImportRefused where it is missing or of another type. What may
    also be missing or null is read through `optional`.
    """

    def __init__(self, value: object, file_name: str, place: str) -> None:
        self.file_name = file_name
        self.place = place
        if not isinstance(value, dict):
            self.refuse(None, f"must be an object, not {shown(value)}")
        self._members: dict[str, object] = value
        self._unread = set(value)

    def __contains__(self, name: str) -> bool:
        return name in self._members

    @property
    def names(self) -> Iterable[str]:
        return self._members.keys()

    def optional(self, name: str, read: Callable[[str], Value]) -> Value | None:
        """What `read` gives for the field, or None where it is missing or null."""
        if self._members.get(name) is None:
            self._unread.discard(name)
            return None
        return read(name)

    def text(self, name: str) -> str:
        """Text; half a surrogate pair, which JSON can spell and UTF-8 can't, becomes U+FFFD.

        Others cut titles and replies in the middle of an emoji, so that these come in files without a fault.
        """
        return mended(self._of_type(name, str, "text"))

    def flag(self, name: str) -> bool:
        return self._of_type(name, bool, "true or false")

    def whole(self, name: str, most: int = MAX_WHOLE) -> int:
        """A whole number, not negative."""
        value = self.raw(name)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
            self.refuse(name, f"must be a whole number from 0 to {most}, not {shown(value)}")
        return value

    def real(self, name: str) -> float:
        """A finite number."""
        value = self.raw(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not _is_finite(value):
            self.refuse(name, f"must be a number, not {shown(value)}")
        return value

    def array(self, name: str) -> list[Any]:
        return self._of_type(name, list, "a list")

    def token_ids(self, name: str) -> tuple[int, ...]:
        values = self.array(name)
        for index, value in enumerate(values):
            if type(value) is not int or not 0 <= value <= MAX_TOKEN_ID:
                self.refuse(f"{name}[{index}]", f"must be a token id, not {shown(value)}")
        return tuple(values)

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of texts."""
        items = self.items(name)
        return tuple(items.text(at) for at in items.names)

    def fields(self, name: str) -> Fields:
        return Fields(self.raw(name), self.file_name, self._path(name))

    def each(self, name: str) -> list[Fields]:
        """The objects of a list."""
        items = self.items(name)
        return [items.fields(at) for at in items.names]

    def items(self, name: str) -> Fields:
        """The items of a list, as fields of their own: `name[0]`, `name[1]` and so on."""
        values = {f"{name}[{index}]": value for index, value in enumerate(self.array(name))}
        return Fields(values, self.file_name, self.place)

    def choice(self, name: str, choices: Sequence[Value]) -> Value:
        """One of the choices."""
        value = self.raw(name)
        for choice in choices:
            if choice == value:
                return choice
        return self.refuse(name, f"must be {' or '.join(json.dumps(choice) for choice in choices)}, not {shown(value)}")

    def time(self, name: str) -> datetime:
        """A moment in ISO 8601 with its time zone, as UTC."""
        text = self.text(name)
        try:
            moment = datetime.fromisoformat(text)
            if moment.tzinfo is None:
                self.refuse(name, f"must have a time zone: {shown(text)}")
            moment = moment.astimezone(UTC)
            if not is_shown_everywhere(moment):
                raise OverflowError
            return moment
        except (ValueError, OverflowError):
            self.refuse(name, f"must be a time such as 2026-11-29T08:30:00Z, not {shown(text)}")

    def raw(self, name: str) -> Any:
        """The field's value as it was decoded."""
        if name not in self._members:
            self.refuse(name, "is missing")
        self._unread.discard(name)
        return self._members[name]

    def expect_all_read(self) -> None:
        """Refuses fields that nothing asked for: what isn't understood must not be dropped in silence."""
        for name in self._members:
            if name in self._unread:
                self.refuse(name, "is a field that this version doesn't know")

    def refuse(self, name: str | None, fault: str) -> NoReturn:
        """Raises ImportRefused for a field, or for the object itself."""
        place = self.place if name is None else self._path(name)
        raise ImportRefused(f"{self.file_name}: {place} {fault}" if place else f"{self.file_name}: {fault}")

    def _of_type(self, name: str, kind: type[Value], kind_name: str) -> Value:
        value = self.raw(name)
        if not isinstance(value, kind):
            self.refuse(name, f"must be {kind_name}, not {shown(value)}")
        return value

    def _path(self, name: str) -> str:
        if not PLAIN_NAME.fullmatch(name):  # a key may hold anything, and faults are shown in terminals
            return f"{self.place}[{shown(name)}]"
        return f"{self.place}.{name}" if self.place else name


def is_shown_everywhere(moment: datetime) -> bool:
    """Whether a moment has a date in every time zone: those of the first and the last day that Python knows don't."""
    return FIRST_MOMENT <= moment <= LAST_MOMENT


def shown(value: object) -> str:
    """A value as JSON, cut where it is long."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, str):
        value = value[:MAX_SHOWN_CHARS]
    text = json.dumps(value, ensure_ascii=False).encode(errors="replace").decode()
    text = CONTROLS.sub(lambda control: f"\\u{ord(control[0]):04x}", text)
    return text if len(text) <= MAX_SHOWN_CHARS else f"{text[: MAX_SHOWN_CHARS - 1]}…"


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number beyond what a float holds
        return False
