"""Text that people and models wrote, on its way to a terminal, which would obey some of it."""

from __future__ import annotations

import json
import re
from typing import TextIO

# They move the cursor, rename the window, or worse; the last two make a line read as another one than it is.
_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202d\u202e]")
# JSON spells out those below 0x20 by itself.
_OBEYED_IN_JSON = re.compile("[\x7f-\x9f\u202d\u202e]")


def harmless(text: str) -> str:
    """The text without what a terminal would obey."""
    return _OBEYED.sub("\ufffd", text.replace("\r\n", "\n"))


def shown_on(out: TextIO, text: str) -> str:
    """As it is for a program or a file, harmless for a terminal."""
    return harmless(text) if out.isatty() else text


def json_line(value: object, out: TextIO | None) -> str:
    """One line of JSON; of ASCII alone where `out` has another encoding than UTF-8."""
    encoding = getattr(out, "encoding", None) or "ascii"
    line = json.dumps(value, ensure_ascii=not encoding.lower().startswith("utf"))
    return _OBEYED_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", line)
