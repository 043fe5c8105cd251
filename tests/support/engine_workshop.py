"""Async engines over the stand-in model, with what is needed to hold them and to look behind them."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

from paged_chat.engine import AsyncEngine, EngineConfig, SamplingParams, TokenDelta
from paged_chat.engine.engine import Engine
from paged_chat.engine.progress import LoadProgress, OnProgress
from paged_chat.engine.shared_runs import BlockReads
from patience import PATIENCE_S
from slot_runner import SlotRunner, make_core


class SlotEngine(Engine):
    """An engine over the stand-in model; its runner can be slowed down, held and made to fail."""

    def __init__(self, runner: SlotRunner, **options: object) -> None:
        self.runner = runner
        self.was_closed = False
        self._held_deltas = []
        self._warm_up = None
        self._block_reads = BlockReads()
        self._core = make_core(runner, **options)  # type: ignore[arg-type]

    def close(self) -> None:
        self.was_closed = True


class Workshop:
    """Makes async engines, and keeps what is needed to look behind them."""

    def __init__(self) -> None:
        self.runner = SlotRunner()
        self.engine = SlotEngine(self.runner)
        self.gate = threading.Event()  # steps wait here once `hold` was called
        self.is_stepping = threading.Event()  # one of them has come there
        self.may_load = threading.Event()
        self.may_load.set()
        self.made: list[AsyncEngine] = []

    def make(self, load_error: BaseException | None = None) -> AsyncEngine:
        def build(config: EngineConfig, on_progress: OnProgress) -> Engine:
            assert self.may_load.wait(PATIENCE_S)
            on_progress(LoadProgress("load", 1, 1))
            if load_error is not None:
                raise load_error
            return self.engine

        self.made.append(AsyncEngine(EngineConfig(), build=build))
        return self.made[-1]

    def hold(self) -> None:
        """From now on each step waits until the gate is opened."""
        self.runner.before_step = lambda: self._wait()

    def close(self) -> None:
        """Lets everything go on to its end."""
        self.gate.set()
        self.may_load.set()
        for engine in self.made:
            engine.close()

    def _wait(self) -> None:
        self.is_stepping.set()
        assert self.gate.wait(PATIENCE_S)


def run(story: Callable[[], Awaitable[Any]]) -> Any:
    async def within_patience() -> Any:
        async with asyncio.timeout(PATIENCE_S):
            return await story()

    return asyncio.run(within_patience())


async def collect(engine: AsyncEngine, prompt: list[int], params: SamplingParams, **options: str) -> list[TokenDelta]:
    return [delta async for delta in engine.stream(prompt, params, **options)]


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.001)


def ids(deltas: list[TokenDelta], sample: int = 0) -> tuple[int, ...]:
    return tuple(token_id for delta in deltas if delta.sample == sample for token_id in delta.token_ids)


def num_referenced(engine: AsyncEngine) -> int:
    return engine.call(lambda own: own.snapshot()).result(PATIENCE_S).num_referenced
