"""Which of Gradio's doors are open, and to whom ours are."""

from __future__ import annotations

import re

from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..api.server_record import ENGINE_PATH
from .access import NOT_LOGGED_IN, user_of
from .page_assets import URL as ASSETS_URL

OWN = "/paged-chat/"
_API = "/gradio_api/"
# Gradio also takes uploads, gives out files and the session's token, fetches from elsewhere, edits its own source, and
# keeps histories; the page needs none of that.
_USED_OF_API = (
    "app_id", "cancel", "heartbeat/", "login_check", "queue/", "reset", "run/", "startup-events", "theme.css", "user"
)  # fmt: skip
_CLOSED = ("/monitoring", "/openapi.json")
_SAME_SITE = re.compile(r"; *samesite=\w+", re.IGNORECASE)


class Doors:
    """ASGI middleware of the page.

    - Of Gradio's own routes only those that the page uses are there.
    - Ours are for people who are logged in, before anything of a request is read.
    - The cookie of a login goes with no request that another site's page makes.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if _is_closed(scope["path"]):
            await JSONResponse({"error": "there is no such page"}, status_code=404)(scope, receive, send)
            return
        if _is_personal(scope["path"]) and user_of(HTTPConnection(scope)) is None:
            await JSONResponse({"error": NOT_LOGGED_IN}, status_code=401)(scope, receive, send)
            return

        async def send_with_close_cookies(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                cookies = headers.getlist("set-cookie")
                if cookies:
                    del headers["set-cookie"]
                    for cookie in cookies:
                        headers.append("set-cookie", f"{_SAME_SITE.sub('', cookie)}; SameSite=Lax")
            await send(message)

        await self._app(scope, receive, send_with_close_cookies)


def _is_closed(path: str) -> bool:
    if path.startswith(_API):
        return not path.removeprefix(_API).startswith(_USED_OF_API)
    return path.startswith(_CLOSED)


def _is_personal(path: str) -> bool:
    # The engine's door has a key of its own.
    return path.startswith(OWN) and not path.startswith((f"{ASSETS_URL}/", ENGINE_PATH))
