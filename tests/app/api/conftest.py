"""An engine that is served by this process, and what talks to it."""

from collections.abc import Iterator

import pytest

from engine_server import EngineServer, serve_engine
from fake_engine import FakeEngine
from paged_chat.app.api.remote_engine import RemoteEngine


@pytest.fixture
def server(fake: FakeEngine) -> Iterator[EngineServer]:
    server = serve_engine(fake.open)
    yield server
    fake.go()
    server.close()


@pytest.fixture
def remote(server: EngineServer) -> Iterator[RemoteEngine]:
    remote = server.connect()
    yield remote
    remote.close()
