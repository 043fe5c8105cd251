"""Finding a server of this person whose engine can be used instead of one of our own."""

from __future__ import annotations

import http.client
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from paged_chat.engine.model.catalog import is_same_model
from paged_chat.engine.progress import OnProgress

from . import server_record
from .server_record import ENGINE_PATH, ServerRecord

if TYPE_CHECKING:
    from .remote_engine import RemoteEngine

ANSWER_S = 5.0
NO_SERVER = "no `paged-chat web` or `serve` of yours runs here: start one"


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A server that answered just now, and the model that it has loaded or loads."""

    record: ServerRecord
    model: str

    @property
    def address(self) -> str:
        return self.record.address

    @property
    def words(self) -> str:
        """Such as "paged-chat web at 127.0.0.1:7860"."""
        return f"paged-chat {self.record.command} at {self.address}"

    def has_model(self, model: str) -> bool:
        """Whether that is the model which was meant by this name or path."""
        return is_same_model(self.model, model)

    def open(self, on_progress: OnProgress) -> RemoteEngine:
        """Its engine. Raises EngineUnavailable if it has gone meanwhile."""
        from .remote_engine import RemoteEngine

        return RemoteEngine(self.record, on_progress)


def find_servers() -> list[RunningServer]:
    """Those whose engine can be used, the newest first; notes of servers that aren't there any more are removed."""
    return [found for record in server_record.records() if (found := _look_at(record)) is not None]


def server_for(model: str) -> RunningServer | None:
    """The newest with this model, else the newest of all; None where none runs."""
    servers = find_servers()
    return next((server for server in servers if server.has_model(model)), next(iter(servers), None))


def _look_at(record: ServerRecord) -> RunningServer | None:
    """None for one that is gone, that has no engine to share, or that speaks another version's language."""
    from .wire import PROTOCOL

    connection = http.client.HTTPConnection(record.address, timeout=ANSWER_S)  # asks no proxy
    try:
        connection.request("GET", ENGINE_PATH, headers={"Authorization": f"Bearer {record.token}"})
        answer = connection.getresponse()
        about = json.loads(answer.read()) if answer.status == 200 else {}
    except ConnectionRefusedError:
        server_record.remove(record)
        return None
    except (OSError, http.client.HTTPException, ValueError):
        return None
    finally:
        connection.close()
    if about.get("protocol") != PROTOCOL or about.get("phase") not in ("loading", "ready"):
        return None
    return RunningServer(record, str(about["model"]))
