"""How much a request may carry, and for how long it may keep the server waiting for it.

A request is read whole before anybody looks at who sends it, so a stranger's must not fill the memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

# A question with ten of the largest attachments, its letters spelled as JSON spells them.
MAX_BODY_BYTES = 32_000_000
MAX_TOTAL_BYTES = 256_000_000
PAUSE_S = 30.0


class BodyLimit:
    """ASGI middleware; a request that goes beyond is answered as any HTTPException is, with 408, 413 or 503.

    max_bytes: of one request's body.
    max_total: of all bodies whose requests aren't answered yet.
    pause_s: how long nothing may come while a body isn't whole.
    streamed: paths whose requests count what they read themselves and don't keep it in memory.
    """

    def __init__(
        self,
        app: ASGIApp,
        max_bytes: int = MAX_BODY_BYTES,
        max_total: int = MAX_TOTAL_BYTES,
        pause_s: float = PAUSE_S,
        streamed: Collection[str] = (),
    ) -> None:
        self._app = app
        self._max_bytes = max_bytes
        self._max_total = max_total
        self._pause_s = pause_s
        self._streamed = streamed
        self._total = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        is_streamed = scope["path"] in self._streamed
        num_bytes = 0
        is_whole = False

        async def receive_within_limits() -> Message:
            nonlocal num_bytes, is_whole
            if is_whole:  # what is awaited now is that whoever asks goes away
                return await receive()
            try:
                async with asyncio.timeout(self._pause_s):
                    message = await receive()
            except TimeoutError:
                raise HTTPException(408, f"nothing came for {self._pause_s:.0f} s: send the request again") from None
            is_whole = message["type"] != "http.request" or not message.get("more_body", False)
            if not is_streamed:
                num_more = len(message.get("body", b""))
                num_bytes += num_more
                self._total += num_more
                if num_bytes > self._max_bytes:
                    raise HTTPException(413, f"a request may carry {self._max_bytes:,} bytes: send less at once")
                if self._total > self._max_total:
                    raise HTTPException(503, "too much is being sent to this server at once: try again in a moment")
            return message

        try:
            await self._app(scope, receive_within_limits, send)
        finally:
            self._total -= num_bytes
