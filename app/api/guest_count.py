"""Requests to the API are guests of the engine for as long as they are answered."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from ..service.engine_guests import EngineGuests, Guest


class GuestCount:
    """ASGI middleware; what is only looked up doesn't count."""

    def __init__(self, app: ASGIApp, guests: EngineGuests) -> None:
        self._app = app
        self._guests = guests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "POST":
            with self._guests.visit(Guest.REQUEST):
                await self._app(scope, receive, send)
        else:
            await self._app(scope, receive, send)
