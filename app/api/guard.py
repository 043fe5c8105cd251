"""Keeps other web sites away from the page, and the page's readers away from other web sites.

A site that somebody visits can send requests to 127.0.0.1, and by a name of its own that points there (DNS rebinding)
it could read the answers. So whatever changes something must come from the page itself, and a page for this machine
only answers to this machine's names.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_SAFE_METHODS = frozenset(["GET", "HEAD", "OPTIONS"])
# Gradio draws its page with styles and functions made from text. Nothing may be fetched from elsewhere.
_POLICY = "; ".join(
    [
        "default-src 'self'",
        "script-src 'self' 'unsafe-inline' 'unsafe-eval'",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data: blob:",
        "font-src 'self' data:",
        "object-src 'none'",
        "base-uri 'self'",
        "form-action 'self'",
        "frame-ancestors 'self'",
    ]
)


class Guard:
    """ASGI middleware around the whole application.

    names: the host names to answer to; None is any, for a page that others may reach under names we don't know.
    """

    def __init__(self, app: ASGIApp, names: frozenset[str] | None) -> None:
        self._app = app
        self._names = names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        if (reason := self._fault(scope)) is not None:
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008, "reason": reason})
            else:
                await PlainTextResponse(reason, status_code=403)(scope, receive, send)
            return

        async def send_with_policy(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.setdefault("Content-Security-Policy", _POLICY)
                headers.setdefault("Referrer-Policy", "no-referrer")
                headers.setdefault("X-Content-Type-Options", "nosniff")
            await send(message)

        await self._app(scope, receive, send_with_policy)

    def _fault(self, scope: Scope) -> str | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if self._names is not None and urlsplit(f"//{host}").hostname not in self._names:
            return f"this page answers to {', '.join(sorted(self._names))} only"
        origin = headers.get("origin")
        changes = scope["type"] == "websocket" or scope["method"] not in _SAFE_METHODS
        if changes and origin is not None and urlsplit(origin).netloc != host:
            return "this request comes from another page"
        return None
