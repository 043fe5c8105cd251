"""The engine for a second process of the same person: for whoever knows the token, from this machine."""

from __future__ import annotations

import hmac
import ipaddress
from contextlib import suppress

from starlette.requests import HTTPConnection, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket

from ..service.engine_host import EngineHost
from .engine_session import EngineSession
from .server_record import ENGINE_PATH, SOCKET_PATH
from .wire import PROTOCOL

REFUSAL = "this is for programs of the person who runs the server: they know the token"


class EngineRoutes:
    """What the engine is, and the socket through which it is used."""

    def __init__(self, host: EngineHost, token: str) -> None:
        self._host = host
        self._token = token

    @property
    def routes(self) -> list[BaseRoute]:
        return [Route(ENGINE_PATH, self._about), WebSocketRoute(SOCKET_PATH, self._serve)]

    async def _about(self, request: Request) -> Response:
        if not self._may_use(request):
            return JSONResponse({"error": REFUSAL}, status_code=403)
        status = self._host.status
        return JSONResponse({"protocol": PROTOCOL, "model": self._host.config.model, "phase": status.phase})

    async def _serve(self, socket: WebSocket) -> None:
        if not self._may_use(socket):
            await socket.close()  # before it was accepted: the handshake is answered with 403
            return
        await socket.accept()
        await EngineSession(socket, self._host).serve()

    def _may_use(self, connection: HTTPConnection) -> bool:
        scheme, _, given = connection.headers.get("authorization", "").partition(" ")
        is_known = hmac.compare_digest(given.encode(), self._token.encode()) and scheme.lower() == "bearer"
        return is_known and connection.client is not None and _is_here(connection.client.host)


def _is_here(address: str) -> bool:
    with suppress(ValueError):
        return ipaddress.ip_address(address).is_loopback
    return False
