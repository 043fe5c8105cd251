"""The live panel of blocks: a WebSocket of its own, which stands only while the panel can be seen."""

from __future__ import annotations

import asyncio
import contextlib
from typing import cast

from fastapi import APIRouter
from starlette.websockets import WebSocket, WebSocketDisconnect

from paged_chat.engine.errors import PagedChatError

from ..cache_view.block_note import BlockNote, read_block
from ..service.chat_service import ChatService
from ..task_end import end_tasks
from .access import service_of
from .page_socket import News, admitted, said_by_page, tell_page
from .panel_feed import PanelFeed
from .panel_source import PoolSource

router = APIRouter()


@router.websocket("/paged-chat/panel")
async def panel(socket: WebSocket) -> None:
    """Tells how the pool changes, and of the block that is pointed at."""
    user = await admitted(socket)
    if user is None:
        return
    source = cast(PoolSource, socket.app.state.pool_source)
    with contextlib.suppress(WebSocketDisconnect):
        await PanelTab(socket, service_of(socket), source, user).serve()


class PanelTab:
    """The panel of one open page."""

    def __init__(self, socket: WebSocket, service: ChatService, source: PoolSource, user: str) -> None:
        self._socket = socket
        self._service = service
        self._source = source
        self._user = user

    async def serve(self) -> None:
        """Until the panel is hidden or the page closed. Raises WebSocketDisconnect."""
        following = asyncio.create_task(self._follow())
        try:
            while True:
                await self._take(await said_by_page(self._socket))
        finally:
            await end_tasks(following)

    async def _follow(self) -> None:
        feed, source = PanelFeed(), self._source
        with source.watch() as changed:
            while True:
                if (news := feed.news(source.view, source.log, source.num_lines)) is not None:
                    await tell_page(self._socket, news)
                await changed.wait()
                changed.clear()

    async def _take(self, request: object) -> None:
        match request:
            case {"kind": "block", "id": int(block_id)}:
                # A person sees the text of their own chats only: what they share with others is told, not what it says.
                question = read_block.ask(block_id, salt=self._user)
                with contextlib.suppress(PagedChatError):  # another model has a smaller pool, or there is none
                    note = await asyncio.wrap_future(self._service.ask_engine(question))
                    await tell_page(self._socket, _note(note))


def _note(note: BlockNote) -> News:
    return {
        "kind": "block",
        "id": note.detail.block_id,
        "state": note.state_words,
        "figures": note.figures_words,
        "holders": note.holders_words,
        "text": note.text,
        "is_withheld": note.detail.is_withheld,
    }
