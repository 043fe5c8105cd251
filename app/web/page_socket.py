"""What an open page and this program say to each other on a WebSocket."""

from __future__ import annotations

import json
from typing import Any

from starlette.websockets import WebSocket, WebSocketDisconnect

from .access import CLOSED_FOR_STRANGERS, NOT_LOGGED_IN, user_of

NOT_UNDERSTOOD = 1007

News = dict[str, Any]


async def admitted(socket: WebSocket) -> str | None:
    """Accepts the socket and gives the name of whose page it is; closes a stranger's, and gives None."""
    await socket.accept()
    user = user_of(socket)
    if user is None:
        await socket.close(CLOSED_FOR_STRANGERS, NOT_LOGGED_IN)
    return user


async def tell_page(socket: WebSocket, news: News) -> None:
    await socket.send_text(json.dumps(news, ensure_ascii=False, separators=(",", ":")))


async def said_by_page(socket: WebSocket) -> object:
    """The next message, decoded. Raises WebSocketDisconnect; what no page says ends the socket."""
    message = await socket.receive()
    if message["type"] == "websocket.disconnect":
        raise WebSocketDisconnect(message["code"])
    try:
        return json.loads(message.get("text") or "")
    except (ValueError, RecursionError):
        await socket.close(NOT_UNDERSTOOD)
        raise WebSocketDisconnect(NOT_UNDERSTOOD) from None
