"""What an open page says on a WebSocket."""

from __future__ import annotations

import json

from starlette.websockets import WebSocket, WebSocketDisconnect

NOT_UNDERSTOOD = 1007


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
