"""The zip that ChatGPT sends: in it the conversations, in one file or numbered ones, among pictures and pages."""

from __future__ import annotations

import re
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

from ..errors import ImportRefused
from .json_source import MAX_FILE_BYTES, JsonSource

MAGIC = (b"PK\x03\x04", b"PK\x05\x06")  # the second is an empty one
_CONVERSATIONS = re.compile(r"(?:.*/)?conversations(?:-\d+)?\.json", re.ASCII)


def conversation_files(stream: BinaryIO, name: str, max_bytes: int = MAX_FILE_BYTES) -> Iterator[JsonSource]:
    """Opens the files of conversations one after the other, by name; to be used within `refusing_damage`.

    Nothing is unpacked to the disk, and no more is unpacked at all than the files together may hold, whatever sizes the
    archive claims.
    """
    num_left = max_bytes
    with zipfile.ZipFile(stream) as archive:
        members = sorted({member for member in archive.namelist() if _CONVERSATIONS.fullmatch(member)})
        if not members:
            raise ImportRefused(f"{name}: there is no conversations.json in it")
        for member in members:
            with archive.open(member) as file:
                source = JsonSource(file, f"{name}: {member}", max_file_bytes=num_left)
                yield source
                num_left -= source.num_bytes


@contextmanager
def refusing_damage(name: str) -> Iterator[None]:
    """Raises ImportRefused for what zipfile finds, in opening a zip or while a file in it is read."""
    try:
        yield
    # zipfile raises RuntimeError for a file with a password and for packing that it doesn't know, and the others for
    # numbers in the archive that lead nowhere.
    except (zipfile.BadZipFile, zlib.error, struct.error, EOFError, ValueError, RuntimeError) as error:
        raise ImportRefused(f"{name}: can't be unpacked: {error}") from error
