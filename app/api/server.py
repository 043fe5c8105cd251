"""Serves the engine without a page."""

from __future__ import annotations

import socket
import threading
from collections.abc import Sequence

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import BaseRoute

from .binding import bound_socket, names_of, url_of
from .body_limit import BodyLimit
from .guard import Guard
from .login_limit import LoginLimit
from .patient_protocol import PatientProtocol

CLOSE_S = 1.0


class ApiServer:
    """Routes behind the guard, being served on a thread of its own until `close`."""

    def __init__(self, routes: Sequence[BaseRoute], host: str, port: int) -> None:
        """Raises AddressRefused for an address that is taken."""
        self._socket: socket.socket = bound_socket(host, port)
        self._socket.listen()  # from here on whoever comes is answered, once the thread is ready
        guards = [Middleware(Guard, names=names_of(host)), Middleware(LoginLimit), Middleware(BodyLimit)]
        config = uvicorn.Config(
            Starlette(routes=list(routes), middleware=guards),
            http=PatientProtocol,
            log_level="warning",
            access_log=False,
            lifespan="off",
            ws_ping_interval=None,
            timeout_graceful_shutdown=int(CLOSE_S),
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run, args=([self._socket],), name="paged-chat serve", daemon=True
        )
        self._thread.start()
        self.url = url_of(host, self._socket.getsockname()[1])

    def close(self) -> None:
        """Ends what is being answered, after a second at most."""
        self._server.should_exit = True
        self._thread.join(2 * CLOSE_S)
        self._socket.close()
