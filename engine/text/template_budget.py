"""What one rendering of a chat template may use: time, the size of a value, and memory all told.

A template can't change a list or a dictionary once it is there (Jinja's sandbox sees to that), so a value's size is
known from its making on. It counts what is inside as often as it is reached: a list that holds a list twice, which
holds another one twice, and so on, takes a few bytes, and its text the memory of a machine.
"""

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar

from jinja2 import TemplateError

MAX_INTEGER_BITS = 1024
# What an item of a list and the text behind it take, about, and the list itself with what is noted of it.
BYTES_PER_ITEM = 64
BYTES_PER_LIST = 256

Value = TypeVar("Value")


class TemplateLimit(TemplateError):
    """The template went beyond a limit."""


@dataclass(frozen=True, slots=True)
class RenderLimits:
    """What one rendering may use.

    max_seconds: processor time of this thread, so a busy machine isn't held against the template.
    max_chars: characters and items of one value, at any moment; what the messages hold comes on top.
    max_bytes: of all values that are made, whether they are still there or not.
    """

    max_seconds: float = 5.0
    max_chars: int = 4_000_000
    max_bytes: int = 256 * 2**20

    def with_messages(self, num_chars: int) -> "RenderLimits":
        """With room for what messages of so many characters need."""
        return RenderLimits(self.max_seconds, self.max_chars + 4 * num_chars, self.max_bytes + 64 * num_chars)


class Budget:
    """What is left of the limits."""

    def __init__(self, limits: RenderLimits) -> None:
        self._limits = limits
        self._deadline = time.thread_time() + limits.max_seconds
        self._bytes_left = limits.max_bytes
        # Size and depth of lists and dictionaries by their id; each is held, so that no other gets that id.
        self._shapes: dict[int, tuple[object, int, int]] = {}

    def check_time(self) -> None:
        if time.thread_time() > self._deadline:
            raise TemplateLimit("it takes too long")

    def check_size(self, size: int) -> None:
        """Of a value, before it is made."""
        if size > self._limits.max_chars:
            raise TemplateLimit(f"it builds a text or list of more than {self._limits.max_chars:,} characters or items")

    def spend(self, num_bytes: int) -> None:
        self._bytes_left -= num_bytes
        if self._bytes_left < 0:
            raise TemplateLimit(f"it takes more than {self._limits.max_bytes // 2**20:,} MiB")

    def made(self, value: Value) -> Value:
        """A value that an operation gave, once it is known not to be too large."""
        if isinstance(value, str):
            self.check_size(len(value))
            self.spend(sys.getsizeof(value))
        elif isinstance(value, list | tuple | dict):
            self.spend(BYTES_PER_LIST + BYTES_PER_ITEM * len(value))
            self.shape_of(value)
        elif isinstance(value, int) and value.bit_length() > MAX_INTEGER_BITS:
            raise TemplateLimit("it computes with too large numbers")
        return value

    def size_of(self, value: object) -> int:
        """Characters of a text, or of all texts in a value, and its items."""
        return len(value) if isinstance(value, str) else self.shape_of(value)[0]

    def shape_of(self, value: object) -> tuple[int, int]:
        """Size, and how deep lists and dictionaries stand in each other."""
        if not isinstance(value, list | tuple | dict):
            return (len(value) if isinstance(value, str) else 1), 0
        known = self._shapes.get(id(value))
        if known is not None:
            return known[1:]
        size, depth = 1, 0
        for item in _items(value):
            item_size, item_depth = self.shape_of(item)
            size += item_size
            depth = max(depth, item_depth)
            self.check_size(size)
        self._shapes[id(value)] = value, size, depth + 1
        return size, depth + 1


_current: ContextVar[Budget] = ContextVar("_current")


@contextmanager
def limited(limits: RenderLimits) -> Iterator[None]:
    """Within this block, templates that are compiled or run in this thread are held to these limits."""
    token = _current.set(Budget(limits))
    try:
        yield
    finally:
        _current.reset(token)


def budget() -> Budget:
    """That of the rendering that runs in this thread."""
    return _current.get()


def _items(value: list[Any] | tuple[Any, ...] | Mapping[Any, Any]) -> Iterator[Any]:
    if isinstance(value, Mapping):
        yield from value.keys()
        yield from value.values()
    else:
        yield from value
