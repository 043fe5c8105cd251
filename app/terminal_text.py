"""Text that people and models wrote, on its way to a terminal, which would obey some of it."""

from __future__ import annotations

import json
import re
from typing import TextIO

_TAB, _LINE_FEED = 0x09, 0x0A
OBEYED = frozenset([*range(0x20), *range(0x7F, 0xA0), 0x202D, 0x202E]) - {_TAB, _LINE_FEED}
"""Code points that move the cursor, rename the window, or worse; the last two make a line read as another one."""

_OBEYED = re.compile(f"[{re.escape(''.join(map(chr, sorted(OBEYED))))}]")


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
    return _OBEYED.sub(lambda found: f"\\u{ord(found[0]):04x}", line)
