"""What an open page is told without asking: one WebSocket for each, however many chats it looks at in turn.

Browsers allow six plain connections to a server for all tabs together, and 255 of this kind.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Iterable
from dataclasses import asdict

from fastapi import APIRouter
from starlette.websockets import WebSocket, WebSocketDisconnect

from paged_chat.engine.errors import PagedChatError

from ..errors import ChatNotFound
from ..mended_text import mended
from ..service.chat_events import ChatChanged, ChatEvent, EngineStatus
from ..service.chat_service import ChatService
from ..task_end import end_tasks
from .access import service_of
from .chat_feed import ChatFeed
from .page_socket import News, admitted, said_by_page, tell_page
from .views import chat_entry, engine_view

# How many chats the list shows before it is asked for more.
LIST_PAGE = 200
# Between two pieces of news of a chat. A browser on the model's own processor takes some 20 ms of a core for a picture,
# in which the model stands still (docs/performance.md): what the eye gains by more of them, the reply loses. So they
# take a 24th of all cores where there are two and more, and come 4 to 12 times a second. And so many times as long
# as the last piece took this thread to make, but never longer than a person waits without wondering.
PAUSE_S = min(0.24, max(0.08, 0.02 * 24 / (os.cpu_count() or 1)))
PAUSE_PER_WORK = 8
LONGEST_PAUSE_S = 1.0

router = APIRouter()


@router.websocket("/paged-chat/live")
async def live(socket: WebSocket) -> None:
    """Listens to what the page looks at, and tells what happens there."""
    user = await admitted(socket)
    if user is None:
        return
    tab = Tab(socket, service_of(socket), user)
    with contextlib.suppress(WebSocketDisconnect):
        await tab.serve()


class Tab:
    """One open page: the chat that it looks at, and the list beside it."""

    def __init__(self, socket: WebSocket, service: ChatService, user: str) -> None:
        self._socket = socket
        self._service = service
        self._user = user
        self._feed: ChatFeed | None = None
        self._reading = asyncio.Lock()  # a feed isn't for two readers at a time
        self._following: asyncio.Task[None] | None = None
        self._list_length = LIST_PAGE
        self._is_archive = False

    async def serve(self) -> None:
        """Until the page is closed. Raises WebSocketDisconnect."""
        app_task = asyncio.create_task(self._follow_app())
        try:
            while True:
                await self._take(await said_by_page(self._socket))
        finally:
            await end_tasks(app_task, *([self._following] if self._following is not None else []))

    async def _take(self, request: object) -> None:
        """What is none of these does nothing: a page of another version may ask for more."""
        match request:
            case {"kind": "open", "chat_id": str() | None as chat_id}:
                await self._open(chat_id and mended(chat_id))
            case {"kind": "older"} if self._feed is not None:
                async with self._reading:
                    await self._tell_all(await asyncio.to_thread(self._feed.read_older))
            case {"kind": "list", "is_archive": bool() as is_archive, "num_more": int() as num_more}:
                self._is_archive = is_archive
                self._list_length += min(max(num_more, 0), LIST_PAGE)
                await self._tell_list()

    async def _open(self, chat_id: str | None) -> None:
        if self._following is not None:
            await end_tasks(self._following)
        self._feed = ChatFeed(self._service, chat_id, self._user) if chat_id is not None else None
        if chat_id is not None and self._feed is not None:
            self._following = asyncio.create_task(self._follow_chat(chat_id, self._feed))

    async def _follow_chat(self, chat_id: str, feed: ChatFeed) -> None:
        try:
            # Before any watching: somebody else's chat is told nothing of.
            await asyncio.to_thread(self._service.chat, chat_id, self._user)
            async with self._service.watch(chat_id) as watcher:
                async for event in watcher:
                    begin = time.thread_time()  # a chat that is read meanwhile, on another thread, is no work of ours
                    news = [event]
                    while (further := watcher.get(timeout=0)) is not None:
                        news.append(further)
                    async with self._reading:
                        for each in news:
                            await self._tell_of(each, feed)
                    # What comes meanwhile is told as one; long code, which costs more to colour, comes less often.
                    work_s = time.thread_time() - begin
                    await asyncio.sleep(max(PAUSE_S, min(work_s * PAUSE_PER_WORK, LONGEST_PAUSE_S)))
        except ChatNotFound:
            await self._tell({"kind": "gone", "chat_id": chat_id})
        except PagedChatError as error:
            await self._tell({"kind": "fault", "error": str(error)})

    async def _tell_of(self, event: ChatEvent, feed: ChatFeed) -> None:
        if isinstance(event, ChatChanged):
            await self._tell_all(await asyncio.to_thread(feed.read))
        elif (reply := feed.reply(event)) is not None:
            await self._tell(reply)

    async def _follow_app(self) -> None:
        async with self._service.watch_app() as watcher:
            await self._tell_list()
            async for event in watcher:
                if isinstance(event, EngineStatus):
                    await self._tell({"kind": "engine", **engine_view(event)})
                else:
                    await self._tell_list()

    async def _tell_list(self) -> None:
        try:
            await self._tell(await asyncio.to_thread(self._list))
        except PagedChatError as error:
            await self._tell({"kind": "fault", "error": str(error)})

    def _list(self) -> News:
        chats = self._service.chats(user=self._user, archived=self._is_archive, limit=self._list_length + 1)
        running = self._service.running_chat_ids()
        return {
            "kind": "list",
            "is_archive": self._is_archive,
            "chats": [asdict(chat_entry(chat, running)) for chat in chats[: self._list_length]],
            "has_more": len(chats) > self._list_length,
        }

    async def _tell_all(self, all_news: Iterable[News]) -> None:
        for news in all_news:
            await self._tell(news)

    async def _tell(self, news: News) -> None:
        await tell_page(self._socket, news)
