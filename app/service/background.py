"""Work that neither a screen's thread nor the engine's should do: rendering templates, counting tokens."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from ..errors import service_closed
from ..promises import refuse

Given = TypeVar("Given")
Result = TypeVar("Result")


class Background:
    """A few threads, and work that begins when something else is there."""

    def __init__(self, num_threads: int) -> None:
        self._pool = ThreadPoolExecutor(num_threads, thread_name_prefix="paged-chat background")

    def after(self, given: Future[Given], work: Callable[[Given], Result]) -> Future[Result]:
        """The future of `work(given.result())`, which waits for `given` without holding a thread.

        It raises what `given` raises, and EngineUnavailable after `close`; it may be cancelled until the work begins.
        """
        promised: Future[Result] = Future()

        def carry_out() -> None:
            if not promised.set_running_or_notify_cancel():
                return
            try:
                promised.set_result(work(given.result()))
            except BaseException as error:
                promised.set_exception(error)

        def begin(_: Future[Given]) -> None:
            try:
                self._pool.submit(carry_out)
            except RuntimeError:  # closed meanwhile
                refuse(promised, service_closed())

        given.add_done_callback(begin)
        return promised

    def close(self) -> None:
        """Begins nothing more; what has begun goes on."""
        self._pool.shutdown(wait=False)
