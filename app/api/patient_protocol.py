"""HTTP connections that aren't waited for without end.

uvicorn waits for a request's head as long as its sender likes, so a few hundred connections that send nothing, or a
letter a minute (Slowloris), would be all that a server can hold.
"""

from __future__ import annotations

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_S = 20.0
MAX_CONNECTIONS = 500


class PatientProtocol(H11Protocol):
    """A connection is closed where a request's head isn't whole in time, and at once where there are too many."""

    head_s = HEAD_S
    max_connections = MAX_CONNECTIONS
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.max_connections:
            transport.close()
        else:
            self._watch_for_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_watch()
        super().connection_lost(exc)

    def _watch_for_head(self) -> None:
        """Between two requests uvicorn closes the connection itself, unless a part of the next one has come."""
        is_waiting = self.conn.their_state is h11.IDLE and self.timeout_keep_alive_task is None
        if not is_waiting:
            self._end_watch()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(self.head_s, self._give_up)

    def _give_up(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()

    def _end_watch(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
