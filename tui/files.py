"""Files: those that a prompt names with @ are found, completed and read; what is taken along is written.

A folder may lie on a slow disk or far away, so screens call these on a thread.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

from paged_chat.app.attachments import Attachment, read_attachment
from paged_chat.app.errors import ExportRefused

MAX_MATCHES = 30
_MENTION = re.compile(r'(?:^|(?<=\s))@(?:"([^"\n]+)"|(\S+))')


def mentioned(text: str) -> list[Path]:
    """The files named in a text that are there; a name in quotes may have spaces. Anything else after an @ is text."""
    return list(dict.fromkeys(path for name in _names_in(text) if _is_file(path := Path(os.path.expanduser(name)))))


def missing(text: str) -> list[str]:
    """Names after an @ that look like a file's, with a slash or a dot in them, where no file is."""
    looked_for = [name for name in _names_in(text) if "/" in name or "." in name]
    return [name for name in dict.fromkeys(looked_for) if not _is_file(Path(os.path.expanduser(name)))]


def _names_in(text: str) -> list[str]:
    return [match[1] or match[2].rstrip(".,;:!?)") for match in _MENTION.finditer(text)]


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:
        return False  # a name that no file can have


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
        with os.scandir(os.path.expanduser(folder) or ".") as entries:
            found = [(entry.name, entry.is_dir()) for entry in entries if _is_meant(entry.name, prefix)]
    except OSError:
        return []
    matches = []
    for name, is_folder in sorted(found, key=lambda pair: pair[0].lower())[:MAX_MATCHES]:
        path = os.path.join(folder, name) + ("/" if is_folder else "")
        matches.append(f'@"{path}"' if " " in path and not is_folder else f"@{path}")
    return matches


def write_new(path: str, write: Callable[[TextIO], object]) -> Path:
    """Has `write` fill a file that isn't there yet; gives its whole path. Raises ExportRefused."""
    from paged_chat.app.porting.new_file import new_file

    try:
        target = Path(os.path.abspath(os.path.expanduser(path)))
    except OSError as error:
        raise ExportRefused(f"this folder is gone ({error.strerror}): write a path that begins with /") from error
    if os.path.lexists(target):
        raise ExportRefused(f"{target} is there already: choose another name")
    with new_file(target) as out:
        write(out)
    return target


def _is_meant(name: str, prefix: str) -> bool:
    """Hidden files only where the dot is written."""
    return name.lower().startswith(prefix.lower()) and (bool(prefix) or not name.startswith("."))
