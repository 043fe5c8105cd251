"""Files as people bring them."""

from collections.abc import Callable
from io import BufferedReader, BytesIO

import pytest

from paged_chat.app.errors import ImportRefused
from paged_chat.app.porting import ReadChats, read_stream

Read = Callable[[bytes | str], ReadChats]
Fault = Callable[[bytes | str], str]


@pytest.fixture(scope="session")
def read() -> Read:
    """Reads a file's content, under the name `f`."""

    def read(content: bytes | str) -> ReadChats:
        return read_stream(BufferedReader(BytesIO(content.encode() if isinstance(content, str) else content)), "f")

    return read


@pytest.fixture(scope="session")
def fault(read: Read) -> Fault:
    """Why a file is refused."""

    def fault(content: bytes | str) -> str:
        with pytest.raises(ImportRefused) as refused:
            read(content)
        return str(refused.value)

    return fault
