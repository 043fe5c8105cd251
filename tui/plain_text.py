"""Text that people and models wrote, made safe for a terminal."""

from __future__ import annotations

_TAB, _LINE_FEED, _DELETE = 0x09, 0x0A, 0x7F

# Control characters would be obeyed by the terminal: they are shown by the pictures that Unicode has for them, those of
# the upper half, which have none, as replacement characters. Each stays one character, so that places hold.
PICTURES = {
    **{code: 0x2400 + code for code in range(0x20) if code not in (_TAB, _LINE_FEED)},
    _DELETE: 0x2421,
    **dict.fromkeys(range(0x80, 0xA0), 0xFFFD),
    # These two would make a line read as another one than it is.
    **dict.fromkeys((0x202D, 0x202E), 0xFFFD),
}


def plain(text: str) -> str:
    """The text with control characters as pictures; line feeds, tabs and the ends of lines of Windows stay."""
    return text.replace("\r\n", "\n").translate(PICTURES)
