"""A home with two chats in it."""

from contextlib import closing
from pathlib import Path

import pytest

import chat_samples
from paged_chat.app.chats import Chat
from paged_chat.app.store.store import Store, default_path
from stored_chats import CHAT, MUSEUM, MUSEUM_TREE, TREE


@pytest.fixture
def stored(home: Path) -> list[Chat]:
    """Lisbon, then Museum, as the list shows them."""
    with closing(Store(default_path())) as store:
        return store.import_chats([chat_samples.imported(CHAT, TREE), chat_samples.imported(MUSEUM, MUSEUM_TREE)])
