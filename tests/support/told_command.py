"""Runs a command as `paged-chat` does, but with an engine that tells a long story slowly in the place of a model.

    python told_command.py web --port 7860

Its process id stands in the home folder, in `pid`.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from fake_engine import FakeEngine
from paged_chat.app import cli
from paged_chat.app.commands import ask
from paged_chat.app.service import chat_service, own_engine
from paged_chat.engine import Engine, EngineConfig
from paged_chat.engine.home import home
from paged_chat.engine.progress import ignore_progress

STORY = "A boat went out to sea. " * 100
PAUSE_S = 0.05  # before each token: whoever waits for a few of them finds the reply still growing


def in_this_thread(fake: FakeEngine) -> Callable[[EngineConfig], AbstractContextManager[Engine]]:
    """What `ask` opens its engine with, and steps itself."""

    @contextmanager
    def open_engine(config: EngineConfig) -> Iterator[Engine]:
        with fake.build(config, ignore_progress) as engine:
            yield engine

    return open_engine


def main() -> None:
    fake = FakeEngine()
    fake.scripts.otherwise = STORY
    fake.pace.pause_s = PAUSE_S
    vars(chat_service)["open_own_engine"] = vars(own_engine)["open_own_engine"] = fake.open
    vars(ask)["open_engine"] = in_this_thread(fake)
    home().mkdir(parents=True, exist_ok=True)
    (home() / "pid").write_text(str(os.getpid()))
    cli.main()


if __name__ == "__main__":
    main()
