"""Puts the page's own head into Gradio's HTML.

Gradio adds the `head` that it is given with a script, once its own page stands, which takes more than a second. In the
HTML it comes first: the conversation is there before Gradio has begun, and Gradio's part, the settings, comes later.
"""

from __future__ import annotations

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_MARK = b"<head>"


class PageHead:
    """ASGI middleware: `head` becomes the beginning of what stands between <head> and </head> at the address `/`."""

    def __init__(self, app: ASGIApp, head: str) -> None:
        self._app = app
        self._head = head.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != "/":
            await self._app(scope, receive, send)
            return
        start: Message | None = None
        body = bytearray()

        async def collect(message: Message) -> None:
            nonlocal start
            if message["type"] == "http.response.start":
                start = message
                return
            body.extend(message.get("body", b""))
            if message.get("more_body", False) or start is None:
                return
            html = bytes(body).replace(_MARK, _MARK + self._head, 1)
            MutableHeaders(scope=start)["Content-Length"] = str(len(html))
            await send(start)
            await send({"type": "http.response.body", "body": html})

        await self._app(scope, receive, collect)
