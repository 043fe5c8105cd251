"""Keeps other web sites away from the page, and the page's readers away from other web sites.

A site that somebody visits can send requests to 127.0.0.1, and by a name of its own that points there (DNS rebinding)
it could read the answers; so could a page of another program on this machine, to which Gradio gives leave. So a page
for this machine only answers to this machine's names, and nobody's browser is answered for another page's sake.
"""

from __future__ import annotations

import re

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([\w.-]+))(?::\d{1,5})?", re.ASCII | re.IGNORECASE)
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
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    # No other page holds this one's window, or has its answers in its own memory.
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


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
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, send_with_policy)

    def _fault(self, scope: Scope) -> str | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "").lower()
        if self._names is not None and _name_of(host) not in self._names:
            return f"this page answers to {', '.join(sorted(self._names))} only"
        origin = headers.get("origin")
        is_foreign = origin is not None and origin.lower() not in (f"http://{host}", f"https://{host}")
        if is_foreign or _is_for_another_page(scope, headers):
            return "this request comes from another page"
        return None


def _name_of(host: str) -> str | None:
    found = _HOST.fullmatch(host)
    return found and (found[1] or found[2])


def _is_for_another_page(scope: Scope, headers: Headers) -> bool:
    """Whether a browser says that another site asks: all that one may do is lead to the page itself, by a link.

    Without an origin come its pictures, scripts, frames and links. A browser that doesn't say for whom it asks sends
    the origin with whatever changes something, and with whatever another page could read.
    """
    if headers.get("sec-fetch-site", "none") in ("same-origin", "none"):
        return False
    is_link = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
    return not (is_link and scope["path"] == "/" and scope["type"] == "http" and scope["method"] == "GET")
