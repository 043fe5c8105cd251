"""Text that people and models wrote, made safe for a terminal."""

from __future__ import annotations

from paged_chat.app.terminal_text import OBEYED

_DELETE = 0x7F
_PICTURES = {**{code: 0x2400 + code for code in range(0x20)}, _DELETE: 0x2421}  # that Unicode has
_UNKNOWN = 0xFFFD

# What the terminal would obey is shown by its picture, or as unknown. Each stays one character, so that places hold.
PICTURES = {code: _PICTURES.get(code, _UNKNOWN) for code in OBEYED}


def plain(text: str) -> str:
    """The text with control characters as pictures; line feeds, tabs and the ends of lines of Windows stay."""
    return text.replace("\r\n", "\n").translate(PICTURES)
