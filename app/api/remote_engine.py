"""An engine that runs in another process of the same person, used like one of our own."""

from __future__ import annotations

import contextlib
import itertools
import logging
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from websockets.exceptions import InvalidStatus, WebSocketException
from websockets.sync.client import ClientConnection, connect

from paged_chat.engine.errors import EngineClosed, PagedChatError
from paged_chat.engine.progress import OnProgress, ignore_progress
from paged_chat.engine.request import FinishReason, SamplingParams, TokenDelta

from ..engine_query import Query
from ..errors import EngineUnavailable
from ..promises import fulfil, refuse
from ..transcript.chat_model import ChatModel
from .server_record import SOCKET_PATH, ServerRecord
from .text_queries import RemoteText
from .wire import Abort, Answer, Ask, Deltas, Ended, Loading, Refusal, Submit, error_named, from_json, to_json, write
from .wire import read_news as read

CONNECT_S = 30.0  # it was heard a moment ago, so it is there; but a busy machine may take long
CLOSE_S = 1.0
WHAT_TO_DO = "load a model here, or start the other program again"

logger = logging.getLogger(__name__)

Result = TypeVar("Result")
Listener = Callable[[TokenDelta], None]


@dataclass(frozen=True, slots=True)
class _Pending:
    """An order that has no answer yet: what type the answer has, and who waits for it.

    on_request: what to do with the id of a request, before its deltas can come.
    """

    kind: Any
    future: Future[Any]
    on_request: Callable[[str], None] | None = None


class RemoteEngine:
    """A ServedEngine over one WebSocket; the other side is an `EngineSession`.

    Two threads: one reads, and answers whoever waits; one hands on requests' ids and deltas, so that a listener may
    itself ask for the model's text functions.

    When the other process goes, every reply that was growing ends with "error" and the reason, and `ended` says it.
    """

    def __init__(self, record: ServerRecord, on_progress: OnProgress = ignore_progress) -> None:
        """Raises EngineUnavailable for a server that isn't there, or that refuses."""
        self._place = record.address
        self._on_progress = on_progress
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._pending: dict[int, _Pending] = {}
        self._listeners: dict[str, Listener] = {}
        self._open_samples: dict[str, set[int]] = {}  # those that still grow, by request
        self._why_closed: EngineClosed | None = None
        self._is_closing = False
        self._ended: Future[None] = Future()
        self._text = RemoteText(self)
        self._deliveries: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._connection = contextlib.ExitStack()
        self._socket = self._connection.enter_context(_connected(record))
        self._threads = [
            threading.Thread(target=self._read, name="paged-chat remote engine", daemon=True),
            threading.Thread(target=self._deliver, name="paged-chat remote replies", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    @property
    def engine(self) -> ChatModel:
        return self._text

    @property
    def ended(self) -> Future[None]:
        return self._ended

    def submit(
        self,
        prompt_token_ids: Sequence[int],
        params: SamplingParams,
        listener: Listener,
        *,
        salt: str = "",
        reply_start: Sequence[int] = (),
    ) -> Future[str]:
        def note(request_id: str) -> None:
            self._listeners[request_id] = listener
            self._open_samples[request_id] = set(range(params.n))

        order = Submit(
            number=next(self._numbers),
            token_ids=tuple(prompt_token_ids),
            params=params,
            salt=salt,
            reply_start=tuple(reply_start),
        )
        return self._order(order, str, note)

    def abort(self, request_id: str, sample: int | None = None) -> Future[bool]:
        return self._order(Abort(number=next(self._numbers), request_id=request_id, sample=sample), bool)

    def call(self, query: Query[Result], /) -> Future[Result]:
        types = query.kind.parameters
        arguments = {name: to_json(types[name], value) for name, value in query.arguments.items()}
        order = Ask(number=next(self._numbers), query=query.kind.name, arguments=arguments)
        return self._order(order, query.kind.result)

    def close(self) -> None:
        self._is_closing = True
        self._connection.close()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()

    def _order(
        self, order: Submit | Abort | Ask, kind: Any, on_request: Callable[[str], None] | None = None
    ) -> Future[Any]:
        pending = _Pending(kind, Future(), on_request)
        with self._lock:
            if self._why_closed is not None:
                pending.future.set_exception(self._why_closed)
                return pending.future
            self._pending[order.number] = pending
        try:
            self._socket.send(write(order))
        except WebSocketException:
            logger.debug("an order couldn't be sent; the reader ends what waits")
        return pending.future

    # On the reading thread

    def _read(self) -> None:
        reason = "its program has gone"
        try:
            for text in self._socket:
                match read(str(text)):
                    case Loading(progress=progress):
                        self._on_progress(progress)
                    case Answer() | Refusal() as answer:
                        self._take(answer)
                    case Deltas(deltas=deltas):
                        self._deliveries.put(partial(self._hand_on, deltas))
                    case Ended(reason=told):
                        reason = told
        except WebSocketException as error:
            logger.debug("the connection to the engine broke: %s", error)
        except PagedChatError as error:  # what came can't be read, or nobody wants the model that loads
            reason = str(error)
        self._end(reason)
        self._connection.close()

    def _take(self, answer: Answer | Refusal) -> None:
        with self._lock:
            pending = self._pending.pop(answer.number)
        if pending.on_request is None or isinstance(answer, Refusal):
            _answer(pending, answer)
            return
        pending.on_request(answer.value)
        self._deliveries.put(partial(_answer, pending, answer))

    def _end(self, reason: str) -> None:
        if self._is_closing:
            error = EngineClosed("the engine is closed: start a new one")
        else:
            error = EngineClosed(f"the engine at {self._place} doesn't answer any more: {reason}; {WHAT_TO_DO}")
        with self._lock:
            self._why_closed = error
            waiting, self._pending = list(self._pending.values()), {}
        for pending in waiting:
            refuse(pending.future, error)
        self._deliveries.put(partial(self._end_replies, error))
        self._deliveries.put(None)

    # On the thread that hands on

    def _deliver(self) -> None:
        while (deliver := self._deliveries.get()) is not None:
            deliver()

    def _hand_on(self, deltas: Sequence[TokenDelta]) -> None:
        for delta in deltas:
            try:
                self._listeners[delta.request_id](delta)
            except Exception:
                logger.exception("a listener failed; the request goes on")
            if delta.finish_reason is not None:
                self._open_samples[delta.request_id].discard(delta.sample)
                if not self._open_samples[delta.request_id]:
                    del self._open_samples[delta.request_id], self._listeners[delta.request_id]

    def _end_replies(self, error: EngineClosed) -> None:
        reason: FinishReason = "abort" if self._is_closing else "error"
        words = None if self._is_closing else str(error)
        self._hand_on(
            [
                TokenDelta(request_id, sample, (), "", reason, error=words)
                for request_id, samples in self._open_samples.items()
                for sample in samples
            ]
        )
        if self._is_closing:
            self._ended.set_result(None)
        else:
            self._ended.set_exception(error)


@contextlib.contextmanager
def _connected(record: ServerRecord) -> Iterator[ClientConnection]:
    with contextlib.ExitStack() as stack:
        try:
            socket = stack.enter_context(
                connect(
                    f"ws://{record.address}{SOCKET_PATH}",
                    additional_headers={"Authorization": f"Bearer {record.token}"},
                    compression=None,  # it doesn't leave the machine
                    proxy=None,
                    # A process that compiles kernels may not answer a ping for minutes; one that dies closes its end.
                    ping_interval=None,
                    open_timeout=CONNECT_S,
                    close_timeout=CLOSE_S,
                    max_size=None,  # a large pool's snapshot is large
                )
            )
        except InvalidStatus as error:
            raise EngineUnavailable(
                f"the program at {record.address} doesn't share its engine with this one (status "
                f"{error.response.status_code}): {WHAT_TO_DO}"
            ) from error
        except (OSError, WebSocketException) as error:
            raise EngineUnavailable(f"no engine answers at {record.address} ({error}): {WHAT_TO_DO}") from error
        yield socket


def _answer(pending: _Pending, answer: Answer | Refusal) -> None:
    if isinstance(answer, Refusal):
        refuse(pending.future, error_named(answer.error, answer.words))
        return
    try:
        value = from_json(pending.kind, answer.value)
    except PagedChatError as error:
        refuse(pending.future, error)
    else:
        fulfil(pending.future, value)
