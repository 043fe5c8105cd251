"""Who may use the page: names and passwords from the command line or a file."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Mapping
from pathlib import Path

from paged_chat.engine.errors import PagedChatError


class AccountsRefused(PagedChatError):
    """Names and passwords that can't be used."""


class Accounts:
    """Names and their passwords; with none of them the page belongs to whoever reaches it."""

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._digests = {name: _digest(password) for name, password in passwords.items()}

    def __len__(self) -> int:
        return len(self._digests)

    def check(self, name: str, password: str) -> bool:
        """Takes the same time however much of a password is right, how long it is, and whether there is such a name."""
        known = self._digests.get(name)
        is_equal = hmac.compare_digest(known or _digest(""), _digest(password))
        return known is not None and is_equal


def _digest(password: str) -> bytes:
    return hashlib.sha256(password.encode(errors="surrogatepass")).digest()


def read_accounts(pairs: Iterable[str], file: Path | None) -> Accounts:
    """Accounts of NAME:PASSWORD pairs, and of a file with such a pair on each line; # begins a comment line.

    Raises AccountsRefused, and never with a password in the message.
    """
    sources = [("--auth", pair) for pair in pairs]
    if file is not None:
        try:
            lines = file.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            reason = (error.strerror if isinstance(error, OSError) else None) or "it isn't text in UTF-8"
            raise AccountsRefused(f"--auth-file {file} can't be read: {reason}") from error
        sources += [
            (f"{file}, line {number}", line.strip())
            for number, line in enumerate(lines, 1)
            if line.strip() and not line.lstrip().startswith("#")
        ]
        if not sources:
            raise AccountsRefused(f"--auth-file {file} names nobody: write USER:PASSWORD lines into it")
    passwords: dict[str, str] = {}
    for place, pair in sources:
        name, separator, password = pair.partition(":")
        if not separator or not name.strip() or not password:
            raise AccountsRefused(f"{place}: write USER:PASSWORD, neither of them empty")
        if name in passwords:
            raise AccountsRefused(f"{place}: {name} has a password already: name each user once")
        passwords[name] = password
    return Accounts(passwords)
