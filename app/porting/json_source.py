"""Reads JSON of any size piece by piece, and names the line and column of a fault."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from typing import IO, Any, NoReturn

from ..errors import ImportRefused

CHUNK_BYTES = 1 << 20
MAX_FILE_BYTES = 1 << 29
# Of one value that is decoded whole: a chat. Decoded, JSON takes several times its size.
MAX_VALUE_CHARS = 1 << 26
# Where a value is too deep for the decoder, the fault is said to be here; no format of ours needs a tenth of it.
MAX_DEPTH = 200
# The longest token that may be cut by the end of what was read ("-Infinity", two \uXXXX), generously.
LONGEST_CUT_CHARS = 16
CUT_STRING = "Unterminated string"

_WHITE_SPACE = re.compile(r"[ \t\n\r]*")
_NUMBER_CHARS = re.compile(r"[-+.0-9eE]*")
_STRING_OR_CONSTANT = re.compile(r'"(?:[^"\\]|\\.)*"|(NaN|-?Infinity)', re.DOTALL)
_STRING_OR_BRACKET = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)


def too_large(max_bytes: int) -> str:
    """What is said of a file beyond the limit."""
    return f"larger than {max_bytes:,} bytes, the limit for a file; split it"


class NotANumber(ValueError):
    """NaN or an infinity, which Python's decoder would take and JSON doesn't have."""


class KeyTwice(ValueError):
    """An object that says two things under one key, of which Python's decoder would keep the last."""


class JsonSource:
    """A JSON text of which at most one value is decoded at a time.

    The caller walks it: `peek` says what comes next, `value` decodes it whole, `items` and `members` step into an array
    or object. All raise ImportRefused with the file's name and the place.

    Always: what is read but not yet consumed is `_buffer[_start:]`; `_line` and `_column` are the place of its first
    character, and `_num_bytes` have been read.
    """

    def __init__(
        self,
        stream: IO[bytes],
        name: str,
        *,
        max_file_bytes: int = MAX_FILE_BYTES,
        max_value_chars: int = MAX_VALUE_CHARS,
        chunk_bytes: int = CHUNK_BYTES,
        first_line: int = 1,
    ) -> None:
        self.name = name
        self._stream = stream
        self._max_file_bytes = max_file_bytes
        self._max_value_chars = max_value_chars
        self._chunk_bytes = chunk_bytes
        self._utf8 = codecs.getincrementaldecoder("utf-8")()
        self._num_bytes = 0
        self._at_end = False
        self._buffer = ""
        self._start = 0
        self._line = first_line
        self._column = 1
        self._decoder = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_refuse_constant)
        while not self._buffer and self._fill(chunk_bytes):
            pass
        if self._buffer.startswith("\ufeff"):  # a byte-order mark, as some editors write it
            self._start = 1

    @property
    def line(self) -> int:
        """Where what comes next begins, once `peek` has looked at it."""
        return self._line

    @property
    def num_bytes(self) -> int:
        """How much of the file is read."""
        return self._num_bytes

    def peek(self) -> str:
        """The next character that isn't white space; "" at the end."""
        while True:
            space = _WHITE_SPACE.match(self._buffer, self._start)
            assert space is not None, "it matches the empty string too"
            self._consume_to(space.end())
            if self._start < len(self._buffer) or not self._fill(self._chunk_bytes):
                return self._buffer[self._start : self._start + 1]

    def value(self) -> Any:
        """Decodes the next value whole."""
        self.peek()
        while True:
            num_left = len(self._buffer) - self._start
            try:
                value, end = self._decoder.raw_decode(self._buffer, self._start)
            except json.JSONDecodeError as error:
                is_cut = error.msg.startswith(CUT_STRING) or error.pos > len(self._buffer) - LONGEST_CUT_CHARS
                # Reading as much again keeps the work of starting over within twice the value's size.
                if is_cut and self._fill(max(self._chunk_bytes, num_left)):
                    continue
                is_short = error.msg.startswith(CUT_STRING) or error.pos == len(self._buffer)
                self._fail(f"{error.msg}; the file ends too early" if is_short else error.msg, error.pos)
            except RecursionError:
                self._fail(f"nested more than {MAX_DEPTH} levels deep", self._first_too_deep())
            except NotANumber as error:
                self._fail(str(error), self._first_constant())
            except ValueError as error:  # a key that stands twice, a whole number of thousands of digits
                self._fail(str(error), self._start)
            # Of a number that reaches to the end of what was read, more may come: "1", "1.", "1.5".
            if _NUMBER_CHARS.fullmatch(self._buffer, end) and self._fill(self._chunk_bytes):
                continue
            self._consume_to(end)
            return value

    def items(self) -> Iterator[int]:
        """Steps through the array that comes next: the caller consumes a value at each index."""
        self._expect("[")
        if self.peek() == "]":
            self._consume_to(self._start + 1)
            return
        index = 0
        while True:
            yield index
            index += 1
            if self._expect(",]") == "]":
                return

    def members(self) -> Iterator[str]:
        """Steps through the object that comes next: the caller consumes a value at each key. None comes twice."""
        self._expect("{")
        if self.peek() == "}":
            self._consume_to(self._start + 1)
            return
        seen = set[str]()
        while True:
            if self.peek() != '"':
                self._fail("Expecting property name enclosed in double quotes", self._start)
            place = self._place_of(self._start)
            key = self.value()
            if key in seen:
                self.refuse(f"{place}: {json.dumps(key)} stands twice in one object")
            seen.add(key)
            self._expect(":")
            yield key
            if self._expect(",}") == "}":
                return

    def expect_end(self) -> None:
        """Nothing but white space is left."""
        if self.peek():
            self._fail("Extra data", self._start)

    def refuse(self, fault: str) -> NoReturn:
        """Raises ImportRefused with the file's name before the fault."""
        raise ImportRefused(f"{self.name}: {fault}")

    def _expect(self, characters: str) -> str:
        found = self.peek()
        if not found or found not in characters:
            self._fail(f"Expecting {' or '.join(map(repr, characters))}", self._start)
        self._consume_to(self._start + 1)
        return found

    def _fill(self, num_bytes: int) -> bool:
        """Reads on, into the buffer; False where nothing is left to read."""
        if self._at_end:
            return False
        if len(self._buffer) - self._start > self._max_value_chars:
            fault = f"one value is larger than {self._max_value_chars:,} characters, the limit for a chat"
            self._fail(fault, self._start)
        piece = self._stream.read(num_bytes)
        self._at_end = not piece
        num_undecoded = len(self._utf8.getstate()[0])
        try:
            text = self._utf8.decode(piece, final=self._at_end)
        except UnicodeDecodeError as error:
            offset = self._num_bytes - num_undecoded + error.start
            self.refuse(f"byte {offset} (0x{error.object[error.start]:02x}) isn't UTF-8: {error.reason}")
        if self._at_end:
            return False
        self._num_bytes += len(piece)
        if self._num_bytes > self._max_file_bytes:
            self.refuse(too_large(self._max_file_bytes))
        self._buffer = self._buffer[self._start :] + text
        self._start = 0
        return True

    def _consume_to(self, end: int) -> None:
        self._line, self._column = self._line_and_column(end)
        self._start = end

    def _line_and_column(self, position: int) -> tuple[int, int]:
        num_lines = self._buffer.count("\n", self._start, position)
        if num_lines:
            return self._line + num_lines, position - self._buffer.rindex("\n", self._start, position)
        return self._line, self._column + position - self._start

    def _place_of(self, position: int) -> str:
        line, column = self._line_and_column(position)
        return f"line {line}, column {column}"

    def _fail(self, fault: str, position: int) -> NoReturn:
        self.refuse(f"{self._place_of(position)}: {fault}")

    def _first_constant(self) -> int:
        matches = _STRING_OR_CONSTANT.finditer(self._buffer, self._start)
        return next(match.start() for match in matches if match[1])

    def _first_too_deep(self) -> int:
        """Where the nesting passes MAX_DEPTH, which is far below what the decoder gave up at."""
        depth = 0
        for match in _STRING_OR_BRACKET.finditer(self._buffer, self._start):
            depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(match[0], 0)
            if depth > MAX_DEPTH:
                return match.start()
        return self._start


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        seen = set[str]()
        for key, _ in pairs:
            if key in seen:
                raise KeyTwice(f"{json.dumps(key)} stands twice in one object")
            seen.add(key)
    return members


def _refuse_constant(name: str) -> NoReturn:
    raise NotANumber(f"{name} isn't a number that JSON has")
