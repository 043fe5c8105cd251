"""The engine on a thread of its own, for screens: many streams at once, none of them waits for another."""

import asyncio
import contextlib
import logging
import queue
import threading
from collections.abc import AsyncIterator, Callable
from collections.abc import Sequence as ListOf
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from .config import EngineConfig
from .engine import Engine
from .errors import EngineClosed
from .progress import OnProgress, ignore_progress
from .request import SamplingParams, TokenDelta

logger = logging.getLogger(__name__)

Result = TypeVar("Result")
Listener = Callable[[TokenDelta], None]


@dataclass(frozen=True, slots=True)
class _Order(Generic[Result]):
    """Something to do on the engine's thread, and where its result goes."""

    function: Callable[[Engine], Result]
    future: Future[Result] = field(default_factory=Future)

    def carry_out(self, engine: Engine) -> None:
        if not self.future.set_running_or_notify_cancel():
            return
        try:
            self.future.set_result(self.function(engine))
        except BaseException as error:
            self.future.set_exception(error)

    def refuse(self, error: BaseException) -> None:
        if self.future.set_running_or_notify_cancel():
            self.future.set_exception(error)


class AsyncEngine:
    """One thread owns the engine; everything else talks to it through an inbox.

    The model loads on that thread as well, so a screen is usable before it: `await engine.ready()` waits for it, and
    what is asked earlier waits its turn. Every method may be called from any thread or event loop.

    Raises EngineClosed from whatever is asked after `close`, and what loading raised from everything if that failed.
    """

    def __init__(
        self,
        config: EngineConfig | None = None,
        on_progress: OnProgress = ignore_progress,
        build: Callable[[EngineConfig, OnProgress], Engine] = Engine,
    ) -> None:
        self._config = config or EngineConfig()
        self._on_progress = on_progress
        self._build = build
        self._inbox: queue.SimpleQueue[_Order[Any] | None] = queue.SimpleQueue()
        self._listeners: dict[str, Listener] = {}
        self._open_samples: dict[str, set[int]] = {}  # those that still grow, by request
        self._lock = threading.Lock()
        self._is_closed = False
        self._why_closed = "the engine is closed: start a new one"
        self._loaded: Future[Engine] = Future()
        self._ended: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, name="paged-chat engine", daemon=True)
        self._thread.start()

    async def ready(self) -> Engine:
        """The loaded engine. Its figures and its text functions may be used from here; its state may not."""
        # Shielded, for whoever gives up waiting would cancel the one future that all share.
        return await asyncio.shield(asyncio.wrap_future(self._loaded))

    @property
    def engine(self) -> Engine:
        """As `ready`, for those who know that it is loaded, because it has answered something."""
        return self._loaded.result(timeout=0)

    @property
    def ended(self) -> Future[None]:
        """Done once nothing is answered any more: None after `close`; else EngineClosed, or what loading raised."""
        return self._ended

    async def stream(
        self, prompt_token_ids: ListOf[int], params: SamplingParams | None = None, *, salt: str = ""
    ) -> AsyncIterator[TokenDelta]:
        """Yields the request's deltas until all its samples have ended.

        Leaving the loop early, or cancelling it, aborts the request. Deltas that wait are never lost: they queue up
        for a slow reader.
        """
        loop = asyncio.get_running_loop()
        deltas: asyncio.Queue[TokenDelta] = asyncio.Queue()

        def listen(delta: TokenDelta) -> None:
            with contextlib.suppress(RuntimeError):  # the reader's loop has ended; its request is aborted below
                loop.call_soon_threadsafe(deltas.put_nowait, delta)

        params = params or SamplingParams()
        submitted = self.submit(prompt_token_ids, params, listen, salt=salt)
        try:
            request_id = await asyncio.wrap_future(submitted)
        except asyncio.CancelledError:
            submitted.add_done_callback(self._abort_unwanted)
            raise
        num_open = params.n
        try:
            while num_open:
                delta = await deltas.get()
                num_open -= delta.finish_reason is not None
                yield delta
        finally:
            if num_open:
                self.abort(request_id)

    def submit(
        self,
        prompt_token_ids: ListOf[int],
        params: SamplingParams,
        listener: Listener,
        *,
        salt: str = "",
        reply_start: ListOf[int] = (),
    ) -> Future[str]:
        """Queues a request; `listener` gets each of its deltas, on the engine's thread: it must be quick.

        reply_start: what each reply begins with, as in `Engine.submit`.
        The future holds the request's id, or the error that refused it.
        """

        def start(engine: Engine) -> str:
            request_id = engine.submit(prompt_token_ids, params, salt=salt, reply_start=reply_start)
            self._listeners[request_id] = listener
            self._open_samples[request_id] = set(range(params.n))
            return request_id

        return self.call(start)

    def abort(self, request_id: str, sample: int | None = None) -> Future[bool]:
        """Ends a request, or one reply of it, after the step that is being computed now; `Engine.abort` says what
        the future holds.
        """
        return self.call(lambda engine: engine.abort(request_id, sample))

    def _abort_unwanted(self, submitted: Future[str]) -> None:
        if not submitted.cancelled() and submitted.exception() is None:
            self.abort(submitted.result())

    def call(self, function: Callable[[Engine], Result]) -> Future[Result]:
        """Runs `function` on the engine's thread, between two steps; for probes and snapshots."""
        order = _Order(function)
        with self._lock:
            if self._is_closed:
                order.refuse(EngineClosed(self._why_closed))
            elif self._loaded.done() and (failure := self._loaded.exception()) is not None:
                order.refuse(failure)
            else:
                self._inbox.put(order)
        return order.future

    def close(self) -> None:
        """Ends every request with finish_reason "abort" and stops the thread; safe to call twice."""
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                self._inbox.put(None)
        if threading.current_thread() is not self._thread:
            self._thread.join()

    async def __aenter__(self) -> "AsyncEngine":
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.close)

    # On the engine's thread

    def _run(self) -> None:
        try:
            engine = self._build(self._config, self._on_progress)
        except BaseException as error:
            with self._lock:
                self._loaded.set_exception(error)
            # From here on `call` refuses by itself; what was asked while it loaded is refused here.
            while not self._inbox.empty():
                if (order := self._inbox.get()) is not None:
                    order.refuse(error)
            self._ended.set_exception(error)
            return
        self._loaded.set_result(engine)
        with engine:
            try:
                while self._take_orders(engine):
                    self._deliver(engine.step())
                for request_id in list(self._open_samples):
                    engine.abort(request_id)
                self._deliver(engine.step())
                self._ended.set_result(None)
            except BaseException as error:
                logger.exception("the engine has stopped")
                self._stop(error)

    def _stop(self, error: BaseException) -> None:
        """After a fault of the engine itself, such as a broken invariant: nobody is left waiting."""
        message = f"the engine has stopped: {type(error).__name__}: {error}"
        with self._lock:
            self._is_closed = True
            self._why_closed = message
        while not self._inbox.empty():
            if (order := self._inbox.get()) is not None:
                order.refuse(EngineClosed(message))
        self._deliver(
            [
                TokenDelta(request_id, sample, (), "", "error", error=message)
                for request_id, samples in self._open_samples.items()
                for sample in samples
            ]
        )
        self._ended.set_exception(EngineClosed(message))

    def _take_orders(self, engine: Engine) -> bool:
        """Does what waits in the inbox, and sleeps there while there is nothing to compute; False when closed."""
        while True:
            if self._inbox.empty() and not engine.has_unfinished:
                self._warm_up(engine)
            try:
                order = self._inbox.get(block=not engine.has_unfinished)
            except queue.Empty:
                return True
            if order is None:
                return False
            order.carry_out(engine)

    def _warm_up(self, engine: Engine) -> None:
        try:
            engine.warm_up()
        except Exception:
            logger.exception("what long prompts need could not be made ready; the first of them will say why")

    def _deliver(self, deltas: list[TokenDelta]) -> None:
        for delta in deltas:
            request_id = delta.request_id
            listener = self._listeners.get(request_id)
            if listener is None:
                continue  # submitted through `call`, with nobody to listen
            try:
                listener(delta)
            except Exception:
                logger.exception("a listener failed; the request goes on")
            if delta.finish_reason is not None:
                self._open_samples[request_id].discard(delta.sample)
                if not self._open_samples[request_id]:
                    del self._open_samples[request_id], self._listeners[request_id]
