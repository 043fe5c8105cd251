"""Files that a prompt names with @: found, completed, read."""

from __future__ import annotations

import os
import re
from pathlib import Path

from paged_chat.app.attachments import Attachment, read_attachment

MAX_MATCHES = 30
_MENTION = re.compile(r'(?:^|(?<=\s))@(?:"([^"\n]+)"|(\S+))')


def mentioned(text: str) -> list[Path]:
    """The files named in a text that are there; a name in quotes may have spaces. Anything else after an @ is text."""
    found: dict[Path, None] = {}
    for match in _MENTION.finditer(text):
        path = Path(match[1] or match[2].rstrip(".,;:!?)")).expanduser()
        try:
            if path.is_file():
                found[path] = None
        except OSError:
            continue  # a name that no file can have
    return list(found)


def attachments_in(text: str) -> list[Attachment]:
    """Raises AttachmentRefused for a file that is there and can't be attached."""
    return [read_attachment(path) for path in mentioned(text)]


def matching_paths(word: str) -> list[str]:
    """Words that complete `@be` to a file or a folder, folders with a slash behind them."""
    if not word.startswith("@"):
        return []
    written = word[1:].lstrip('"')
    folder, prefix = os.path.split(written)
    try:
        entries = sorted(os.scandir(os.path.expanduser(folder) or "."), key=lambda entry: entry.name.lower())
    except OSError:
        return []
    matches = []
    for entry in entries:
        if not entry.name.lower().startswith(prefix.lower()) or (entry.name.startswith(".") and not prefix):
            continue
        path = os.path.join(folder, entry.name) + ("/" if entry.is_dir() else "")
        matches.append(f'@"{path}"' if " " in path and not path.endswith("/") else f"@{path}")
    return matches[:MAX_MATCHES]
