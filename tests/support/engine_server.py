"""A server of an engine in this process, and a second program's way to it."""

from collections.abc import Callable
from dataclasses import dataclass

from fake_engine import FakeEngine
from paged_chat.app.api.accounts import Accounts
from paged_chat.app.api.remote_engine import RemoteEngine
from paged_chat.app.api.routes import api_routes
from paged_chat.app.api.server import ApiServer
from paged_chat.app.api.server_record import ServerRecord
from paged_chat.app.service.engine_host import EngineHost
from paged_chat.app.service.served_engine import OpenEngine
from paged_chat.engine.config import EngineConfig

TOKEN = "the-token"
MODEL = "fake-1b"


@dataclass
class EngineServer:
    """Serves what `open_engine` opens; `fake.open`, for instance."""

    host: EngineHost
    server: ApiServer

    @property
    def address(self) -> str:
        return self.server.url.removeprefix("http://")

    @property
    def record(self) -> ServerRecord:
        return ServerRecord(command="serve", address=self.address, pid=0, token=TOKEN)

    def connect(self) -> RemoteEngine:
        return RemoteEngine(self.record)

    def close(self) -> None:
        self.server.close()
        self.host.close(1.0)


def serve_engine(
    open_engine: OpenEngine, config: EngineConfig | None = None, accounts: dict[str, str] | None = None
) -> EngineServer:
    host = EngineHost(open_engine, config or EngineConfig(model=MODEL), lambda _: None)
    return EngineServer(host, ApiServer(api_routes(host, Accounts(accounts or {}), TOKEN), "127.0.0.1", 0))


Serve = Callable[..., EngineServer]
__all__ = ["MODEL", "TOKEN", "EngineServer", "FakeEngine", "Serve", "serve_engine"]
