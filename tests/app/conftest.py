"""The command line, run in this process."""

import signal
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from paged_chat.app import cli
from paged_chat.app.commands import ask, bench
from paged_chat.app.store.store import Store, default_path
from paged_chat.engine.config import EngineConfig
from patience import be_patient
from scripted_engine import ScriptedEngine

if TYPE_CHECKING:
    from fake_engine import FakeEngine


@dataclass(frozen=True)
class Ended:
    """How a command ended, and what it wrote."""

    code: int
    out: str
    err: str


RunCli = Callable[..., Ended]


@pytest.fixture(autouse=True)
def interruptible() -> Iterator[None]:
    """Ctrl-C as a person's terminal has it: a job in the background, such as a CI's, inherits that it is ignored."""
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, previous)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    be_patient(monkeypatch)


@pytest.fixture
def run_cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> RunCli:
    def run(*arguments: str) -> Ended:
        monkeypatch.setattr("sys.argv", ["paged-chat", *arguments])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.main()
        written = capsys.readouterr()
        return Ended(int(ended.value.code or 0), written.out, written.err)

    return run


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> ScriptedEngine:
    """The engine that `ask` and `bench` get instead of a real one; `configs` tells what they asked for."""
    engine = ScriptedEngine()

    @contextmanager
    def open_engine(config: EngineConfig) -> Iterator[ScriptedEngine]:
        engine.configs.append(config)
        yield engine

    monkeypatch.setattr(ask, "open_engine", open_engine)
    monkeypatch.setattr(bench, "open_engine", open_engine)
    return engine


@pytest.fixture
def fake() -> "Iterator[FakeEngine]":
    """Imported here, for torch comes with it."""
    from fake_engine import FakeEngine

    with closing(FakeEngine()) as fake:
        yield fake


@pytest.fixture
def store() -> Iterator[Store]:
    """The chats of this test's home."""
    with Store(default_path()) as store:
        yield store


@pytest.fixture(scope="module")
def temporary_store() -> Iterator[Store]:
    """A store in memory for many examples; each makes a chat, or a user, of its own."""
    with Store(":memory:") as store:
        yield store
