"""Text as it comes from people, files and pages, made into what a database and UTF-8 can hold."""

from __future__ import annotations


def mended(text: str) -> str:
    """The text, with U+FFFD for what isn't text: NUL, where C takes a text for ended, and half a surrogate pair."""
    text = text.replace("\0", "\ufffd")
    try:
        text.encode()
    except UnicodeEncodeError:
        # JSON can spell halves. Two that stand together become the character that they mean.
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
