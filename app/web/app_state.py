"""What our routes find in the application's state."""

from __future__ import annotations

from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send


class AppState:
    """ASGI middleware: puts `values` into the application's state before the first request sees it.

    Gradio makes the application and serves it in one call, so that a page which connects again may come before whoever
    called it gets to see the application.
    """

    def __init__(self, app: ASGIApp, values: dict[str, Any]) -> None:
        self._app = app
        self._values = values

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        state = scope["app"].state
        for name, value in self._values.items():
            setattr(state, name, value)
        await self._app(scope, receive, send)
