"""A chat service whose engine says what a test wants."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from chat_desk import ChatDesk, until
from fake_engine import FakeEngine
from paged_chat.app.service.chat_service import ChatService


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[ChatDesk]:
    desk = ChatDesk(tmp_path / "chats.db", FakeEngine())
    yield desk
    desk.close()


@pytest.fixture
def service(desk: ChatDesk) -> ChatService:
    return desk.service


@pytest.fixture
def small(tmp_path: Path) -> Iterator[ChatDesk]:
    """One whose model has a window of 128 tokens; it is loaded."""
    desk = ChatDesk(tmp_path / "small.db", FakeEngine(max_model_len=128))
    until(lambda: desk.service.engine_status.phase == "ready")
    yield desk
    desk.close()
