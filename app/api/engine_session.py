"""One program that uses this process's engine: what it orders, and what it is told, over one WebSocket."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

from starlette.websockets import WebSocket, WebSocketDisconnect

from paged_chat.engine.errors import PagedChatError
from paged_chat.engine.request import TokenDelta

# Imported for the kinds of queries in them, which programs may ask.
from ..cache_view import block_note, block_view  # noqa: F401
from ..engine_query import Query, TextQueryKind, query_kinds
from ..errors import words_of
from ..service import prompts, search_watch  # noqa: F401
from ..service.chat_events import EngineStatus
from ..service.engine_guests import Guest
from ..service.engine_host import EngineHost, LoadedEngine
from ..task_end import end_tasks
from ..token_view import token_piece  # noqa: F401
from . import text_queries  # noqa: F401
from .wire import Abort, Answer, Ask, Deltas, Ended, Loading, Refusal, Submit, WireError, from_json, to_json, write
from .wire import read_order as read

logger = logging.getLogger(__name__)

Result = TypeVar("Result")
News = Loading | Answer | Refusal | Deltas | Ended


class EngineSession:
    """Serves one program until it goes, or the engine does.

    It is bound to the engine that was there, or was loading, when it came: when another model takes its place, the
    session ends. Whatever the program left running is aborted when it goes.

    Always: what the engine's thread says is told in that order, a request's id before its deltas.
    """

    def __init__(self, socket: WebSocket, host: EngineHost) -> None:
        """The socket is accepted already."""
        self._socket = socket
        self._host = host
        self._loaded = host.loaded
        self._loop = asyncio.get_running_loop()
        self._outbox: asyncio.Queue[News] = asyncio.Queue()
        self._open_samples: dict[str, set[int]] = {}  # those that still grow, by request; the loop's alone
        self._is_over = False

    async def serve(self) -> None:
        with self._host.guests.visit(Guest.PROGRAM):
            await self._serve()

    async def _serve(self) -> None:
        unwatch = self._host.watch(self._note_status)
        self._note_status(self._host.status)
        telling = asyncio.create_task(self._tell_all())
        try:
            # Shielded, for the future is everybody's.
            await self._take_orders(await asyncio.shield(asyncio.wrap_future(self._loaded)), telling)
        except PagedChatError as error:
            self._outbox.put_nowait(Ended(reason=str(error)))
            await telling
        except WebSocketDisconnect:
            pass
        finally:
            unwatch()
            await end_tasks(telling)

    async def _take_orders(self, loaded: LoadedEngine, telling: asyncio.Task[None]) -> None:
        """Until the program or the engine has gone. Raises WebSocketDisconnect and WireError."""
        taking = asyncio.create_task(self._take_each(loaded))
        try:
            await asyncio.wait({taking, telling}, return_when=asyncio.FIRST_COMPLETED)
            if taking.done():
                await taking
        finally:
            self._is_over = True
            for request_id in self._open_samples:
                loaded.served.abort(request_id)
            await end_tasks(taking)

    async def _take_each(self, loaded: LoadedEngine) -> None:
        while True:
            self._take(loaded, read(await self._told()))

    async def _told(self) -> str:
        """The next message; of bytes, which no program sends, nothing, and that is no order."""
        message = await self._socket.receive()
        if message["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(message["code"])
        return message.get("text") or ""

    def _take(self, loaded: LoadedEngine, order: Submit | Abort | Ask) -> None:
        match order:
            case Submit():
                submitted = loaded.served.submit(
                    order.token_ids, order.params, self._listen, salt=order.salt, reply_start=order.reply_start
                )
                submitted.add_done_callback(partial(self._answer, order.number, str))
                submitted.add_done_callback(partial(self._note_submitted, loaded, order.params.n))
            case Abort():
                aborted = loaded.served.abort(order.request_id, order.sample)
                aborted.add_done_callback(partial(self._answer, order.number, bool))
            case Ask():
                self._ask(loaded, order)

    def _ask(self, loaded: LoadedEngine, order: Ask) -> None:
        kind = query_kinds().get(order.query)
        try:
            if kind is None:
                raise WireError(f"this engine knows no query {order.query}: both programs must be of one version")
            types = kind.parameters
            if unknown := order.arguments.keys() - types.keys():
                raise WireError(f"{order.query} takes no {', '.join(sorted(unknown))}")
            query = Query(kind, {name: from_json(types[name], value) for name, value in order.arguments.items()})
        except PagedChatError as error:
            self._outbox.put_nowait(_refusal(order.number, error))
            return
        if isinstance(kind, TextQueryKind):
            answered: Future[Any] = Future()
            self._loop.run_in_executor(None, _carry_out, partial(kind, loaded.engine, **query.arguments), answered)
        else:
            answered = loaded.served.call(query)
        answered.add_done_callback(partial(self._answer, order.number, kind.result))

    # On any thread, the engine's above all

    def _listen(self, delta: TokenDelta) -> None:
        self._tell(Deltas(deltas=(delta,)))

    def _answer(self, number: int, kind: Any, answered: Future[Any]) -> None:
        error = answered.exception()
        if error is None:
            self._tell(Answer(number=number, value=to_json(kind, answered.result())))
        else:
            self._tell(_refusal(number, error))

    def _note_submitted(self, loaded: LoadedEngine, num_samples: int, submitted: Future[str]) -> None:
        if submitted.exception() is None:
            self._soon(self._open, loaded, submitted.result(), num_samples)

    def _note_status(self, status: EngineStatus) -> None:
        if status.phase == "closed":
            self._tell(Ended(reason="its program was ended"))
        elif self._host.loaded is not self._loaded:
            self._tell(Ended(reason=f"its program has changed to the model {status.model}"))
        elif status.phase == "failed":
            self._tell(Ended(reason=status.error or ""))
        elif status.phase == "loading" and status.progress is not None:
            self._tell(Loading(progress=status.progress))

    def _tell(self, news: News) -> None:
        self._soon(self._outbox.put_nowait, news)

    def _soon(self, function: Callable[..., object], *args: object) -> None:
        with contextlib.suppress(RuntimeError):  # the server has ended, and its loop with it
            self._loop.call_soon_threadsafe(function, *args)

    # On the loop

    def _open(self, loaded: LoadedEngine, request_id: str, num_samples: int) -> None:
        if self._is_over:
            loaded.served.abort(request_id)
        else:
            self._open_samples[request_id] = set(range(num_samples))

    async def _tell_all(self) -> None:
        """Sends what there is to tell; deltas that came since the last sending go in one message."""
        with contextlib.suppress(WebSocketDisconnect, RuntimeError):  # the program has gone; `_take_each` says so too
            while True:
                news = [await self._outbox.get()]
                while not self._outbox.empty():
                    news.append(self._outbox.get_nowait())
                for message in _joined(news):
                    if isinstance(message, Deltas):
                        self._note_ends(message)
                    await self._socket.send_text(write(message))
                    if isinstance(message, Ended):
                        await self._socket.close()
                        return

    def _note_ends(self, message: Deltas) -> None:
        for delta in message.deltas:
            if delta.finish_reason is not None and delta.request_id in self._open_samples:
                self._open_samples[delta.request_id].discard(delta.sample)
                if not self._open_samples[delta.request_id]:
                    del self._open_samples[delta.request_id]


def _joined(news: list[News]) -> list[News]:
    joined: list[News] = []
    for message in news:
        if isinstance(message, Deltas) and joined and isinstance(joined[-1], Deltas):
            joined[-1] = Deltas(deltas=joined[-1].deltas + message.deltas)
        else:
            joined.append(message)
    return joined


def _carry_out(function: Callable[[], Result], answered: Future[Result]) -> None:
    try:
        answered.set_result(function())
    except BaseException as error:
        answered.set_exception(error)


def _refusal(number: int, error: BaseException) -> Refusal:
    if not isinstance(error, PagedChatError):
        logger.error("an order couldn't be carried out", exc_info=error)
        return Refusal(number=number, error=PagedChatError.__name__, words=words_of(error))
    return Refusal(number=number, error=type(error).__name__, words=words_of(error))
