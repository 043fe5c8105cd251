"""Prompts computed on a served engine, for one HTTP request."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from functools import partial
from types import TracebackType

from paged_chat.engine.request import SamplingParams, TokenDelta

from ..service.served_engine import ServedEngine


class Generation:
    """Several prompts at once, each with its samples; leaving it aborts what still runs."""

    def __init__(self, served: ServedEngine, params: SamplingParams, salt: str) -> None:
        self._served, self._params, self._salt = served, params, salt
        self._loop = asyncio.get_running_loop()
        self._deltas: asyncio.Queue[tuple[int, TokenDelta]] = asyncio.Queue()
        self._request_ids: list[str] = []
        self._num_open = 0

    async def start(self, prompts: Sequence[Sequence[int]]) -> None:
        """Raises what the engine refuses a prompt with; then none of them is computed."""
        for index, prompt in enumerate(prompts):
            submitted = self._served.submit(prompt, self._params, partial(self._listen, index), salt=self._salt)
            self._request_ids.append(await asyncio.shield(asyncio.wrap_future(submitted)))
            self._num_open += self._params.n

    async def deltas(self) -> AsyncIterator[tuple[int, TokenDelta]]:
        """With the index of the prompt, until all samples have ended."""
        while self._num_open:
            index, delta = await self._deltas.get()
            self._num_open -= delta.finish_reason is not None
            yield index, delta

    async def __aenter__(self) -> Generation:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._num_open or error is not None:
            for request_id in self._request_ids:
                self._served.abort(request_id)

    def _listen(self, index: int, delta: TokenDelta) -> None:
        with contextlib.suppress(RuntimeError):  # the server has ended, and its loop with it
            self._loop.call_soon_threadsafe(self._deltas.put_nowait, (index, delta))
