"""Stories of the terminal: coroutines, each with an event loop of its own."""

import asyncio
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chat_desk import ChatDesk
from fake_engine import FakeEngine
from paged_chat.tui.screens import service_screen
from patience import PATIENCE_S, be_patient
from tmux import Tmux


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Any:
    story = pyfuncitem.obj
    if not inspect.iscoroutinefunction(story):
        return None
    names = inspect.signature(story).parameters
    asyncio.run(story(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine any write may take so long that it would be told, or refused; no other story wants that."""
    be_patient(monkeypatch)
    monkeypatch.setattr(service_screen, "WRITE_TOLD_AFTER_S", PATIENCE_S)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[ChatDesk]:
    opened = ChatDesk(tmp_path / "chats.db", FakeEngine())
    yield opened
    opened.close()


@pytest.fixture
def tmux(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tmux]:
    monkeypatch.setenv("TERM", "xterm-256color")
    opened = Tmux(tmp_path / "socket")
    yield opened
    opened.end()
