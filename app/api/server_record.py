"""Where servers of this person run: each leaves a private note in the data folder, and others find it there."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TextIO

from paged_chat.engine.home import home

from .binding import address_of

FOLDER = "servers"
ENGINE_PATH = "/paged-chat/engine"
SOCKET_PATH = f"{ENGINE_PATH}/socket"
_FIELDS = {"command": str, "address": str, "pid": int, "token": str}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerRecord:
    """A server of this person.

    command: which one it was started with, "web" or "serve".
    address: host and port, as they stand in a URL.
    token: whoever knows it may use the engine.
    """

    command: str
    address: str
    pid: int
    token: str = field(repr=False)


def record_of(command: str, host: str, port: int) -> ServerRecord:
    """Of a server in this process, with a new token."""
    return ServerRecord(
        command=command, address=address_of(host, port), pid=os.getpid(), token=secrets.token_urlsafe(32)
    )


@contextmanager
def announced(record: ServerRecord) -> Iterator[None]:
    """Others find the server meanwhile; a folder that can't be written only means that they don't.

    The note is locked as long as its server lives, and the system gives up the lock when that dies, however it dies.
    So a note that isn't locked is stale, whoever has its process id by now.
    """
    try:
        file = _write(record)
    except OSError:
        yield
        return
    with file:
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                _path_of(record).unlink()


def records() -> list[ServerRecord]:
    """The servers that live, the newest first; notes that dead ones left are removed."""
    found = []
    for path in _folder().glob("*.json"):
        # What can't be read isn't ours, or of another version.
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            record = _read(path)
            if record is None:
                path.unlink()
            else:
                found.append((path.stat().st_mtime, record))
    return [record for _, record in sorted(found, key=lambda pair: pair[0], reverse=True)]


def remove(record: ServerRecord) -> None:
    """Of a server that doesn't answer at its address."""
    with contextlib.suppress(OSError):
        _path_of(record).unlink()


def _folder() -> Path:
    return home() / FOLDER


def _path_of(record: ServerRecord) -> Path:
    return _folder() / f"{record.pid}.json"


def _write(record: ServerRecord) -> TextIO:
    """The open, locked note. It gets its name once it is whole and locked, so that nobody takes it for a stale one."""
    path = _path_of(record)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    unnamed = path.with_suffix(".new")
    unnamed.unlink(missing_ok=True)
    file = os.fdopen(os.open(unnamed, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8")
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        json.dump(asdict(record), file)
        file.flush()
        unnamed.replace(path)
    except OSError:
        with contextlib.suppress(OSError):  # what couldn't be written still can't
            file.close()
        unnamed.unlink(missing_ok=True)
        raise
    return file


def _read(path: Path) -> ServerRecord | None:
    """None for a stale note. Raises OSError for one that can't be read, or that isn't this person's alone."""
    with path.open(encoding="utf-8") as file:
        status = os.fstat(file.fileno())
        if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise PermissionError(f"{path} isn't private")
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            fields = json.load(file)
            return ServerRecord(**{name: kind(fields[name]) for name, kind in _FIELDS.items()})
        return None
