"""The engine on a thread of its own: many streams at once, stops, faults, loading and closing."""

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from paged_chat.engine import AsyncEngine, EngineConfig, PagedChatError, SamplingParams, TokenDelta
from paged_chat.engine.engine import Engine
from paged_chat.engine.errors import EmptyPrompt, EngineClosed, ModelNotFound
from paged_chat.engine.progress import LoadProgress, OnProgress
from paged_chat.engine.shared_runs import BlockReads
from slot_runner import SlotRunner, greedy, make_core, reply_to

PATIENCE_S = 20.0


class SlotEngine(Engine):
    """An engine over the stand-in model; its runner can be slowed down, held and made to fail."""

    def __init__(self, runner: SlotRunner, **options: object) -> None:
        self.runner = runner
        self.was_closed = False
        self._held_deltas = []
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

    def _wait(self) -> None:
        self.is_stepping.set()
        assert self.gate.wait(PATIENCE_S)


@pytest.fixture
def workshop() -> Iterator[Workshop]:
    workshop = Workshop()
    yield workshop
    workshop.gate.set()
    workshop.may_load.set()
    for engine in workshop.made:
        engine.close()


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


# Streams


def test_a_stream_yields_every_token_and_ends(workshop):
    engine = workshop.make()
    deltas = run(lambda: collect(engine, [1, 2, 3], greedy(6)))
    assert ids(deltas) == reply_to([1, 2, 3], 6)
    assert [delta.finish_reason for delta in deltas] == [None] * 5 + ["length"]


def test_streams_run_in_parallel_in_one_event_loop(workshop):
    engine = workshop.make()
    prompts = [[number, 1, 2] for number in range(12)]

    async def story() -> list[list[TokenDelta]]:
        return await asyncio.gather(*(collect(engine, prompt, greedy(20)) for prompt in prompts))

    streams = run(story)
    assert [ids(deltas) for deltas in streams] == [reply_to(prompt, 20) for prompt in prompts]
    # Together, not one after the other: far fewer steps than tokens.
    assert len(workshop.runner.steps) < 12 * 20 / 2


def test_a_stream_of_n_samples_ends_with_the_last_of_them(workshop):
    engine = workshop.make()
    params = SamplingParams(n=3, temperature=1.0, seed=5, max_tokens=7)
    deltas = run(lambda: collect(engine, [1, 2, 3], params))
    assert [len(ids(deltas, sample)) for sample in range(3)] == [7, 7, 7]
    assert [delta.finish_reason for delta in deltas].count("length") == 3


def test_a_slow_reader_loses_nothing_and_holds_up_nobody(workshop):
    engine = workshop.make()

    async def story() -> tuple[list[TokenDelta], list[TokenDelta]]:
        stream = engine.stream([1, 2, 3], greedy(30))
        first = await anext(stream)
        other = await collect(engine, [4, 5, 6], greedy(30))  # while the first stream is not read
        return [first] + [delta async for delta in stream], other

    slow, other = run(story)
    assert (ids(slow), ids(other)) == (reply_to([1, 2, 3], 30), reply_to([4, 5, 6], 30))


def test_two_event_loops_in_two_threads_share_one_engine(workshop):
    engine = workshop.make()
    prompts = [[1, 2, 3], [4, 5, 6]]
    with ThreadPoolExecutor(2) as threads:
        streams = list(
            threads.map(lambda prompt: asyncio.run(collect(engine, prompt, greedy(15))), prompts, timeout=PATIENCE_S)
        )
    assert [ids(deltas) for deltas in streams] == [reply_to(prompt, 15) for prompt in prompts]


def test_a_refused_prompt_raises_in_its_own_stream_only(workshop):
    engine = workshop.make()

    async def story() -> list[TokenDelta]:
        with pytest.raises(EmptyPrompt):
            await collect(engine, [], greedy(5))
        return await collect(engine, [1], greedy(5))

    assert ids(run(story)) == reply_to([1], 5)


def test_the_salt_is_passed_on(workshop):
    engine = workshop.make()

    async def story() -> list[int]:
        prompt = list(range(40))
        streams = [await collect(engine, prompt, greedy(1), salt=salt) for salt in ("ann", "bob", "ann")]
        return [deltas[-1].stats.num_cached_tokens for deltas in streams if deltas[-1].stats]

    assert run(story) == [0, 0, 39]


# Stopping


def test_leaving_the_loop_aborts_the_request(workshop):
    engine = workshop.make()

    async def story() -> None:
        stream = engine.stream([1, 2, 3], greedy(1000))
        async for _ in stream:
            break
        await stream.aclose()
        await until(lambda: num_referenced(engine) == 0)

    run(story)
    assert len(workshop.runner.steps) < 500
    assert not workshop.engine.has_unfinished


def test_cancelling_the_reader_aborts_the_request(workshop):
    engine = workshop.make()

    async def story() -> None:
        task = asyncio.create_task(collect(engine, [1, 2, 3], greedy(1000)))
        await until(lambda: len(workshop.runner.steps) > 3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: num_referenced(engine) == 0)

    run(story)
    assert not workshop.engine.has_unfinished


def test_cancelling_before_the_request_was_taken_leaves_nothing_running(workshop):
    workshop.hold()
    engine = workshop.make()

    async def story() -> None:
        busy = asyncio.create_task(collect(engine, [1], greedy(2)))
        await until(lambda: workshop.engine.has_unfinished)
        waiting = asyncio.create_task(collect(engine, [2, 3], greedy(1000)))
        await asyncio.sleep(0.02)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        workshop.gate.set()
        assert ids(await busy) == reply_to([1], 2)
        await until(lambda: not workshop.engine.has_unfinished)

    run(story)
    assert num_referenced(engine) == 0
    assert sum(len(step) for step in workshop.runner.steps) <= 4


def test_abort_by_id_ends_the_stream_with_abort(workshop):
    engine = workshop.make()

    async def story() -> tuple[list[TokenDelta], bool, bool]:
        stream = engine.stream([1, 2, 3], greedy(1500))
        first = await anext(stream)
        was_running = await asyncio.wrap_future(engine.abort(first.request_id))
        deltas = [first] + [delta async for delta in stream]
        return deltas, was_running, await asyncio.wrap_future(engine.abort(first.request_id))

    deltas, was_running, again = run(story)
    assert (was_running, again) == (True, False)
    assert deltas[-1].finish_reason == "abort"
    assert ids(deltas) == reply_to([1, 2, 3], len(ids(deltas)))


def test_abort_ends_generation_with_the_step_that_is_being_computed(workshop):
    workshop.hold()
    engine = workshop.make()

    async def story() -> list[TokenDelta]:
        task = asyncio.create_task(collect(engine, [1, 2, 3], greedy(1000)))
        await until(workshop.is_stepping.is_set)
        aborted = engine.abort("r1")
        workshop.gate.set()
        assert await asyncio.wrap_future(aborted)
        return await task

    deltas = run(story)
    assert ids(deltas) == reply_to([1, 2, 3], 1)
    assert len(workshop.runner.steps) == 1


# A step that raises


def test_a_step_that_raises_ends_its_requests_and_the_engine_lives_on(workshop, caplog):
    caplog.set_level(logging.CRITICAL)
    engine = workshop.make()
    workshop.runner.failures.append(RuntimeError("the device is gone"))

    async def story() -> tuple[list[TokenDelta], list[TokenDelta]]:
        return await collect(engine, [1, 2, 3], greedy(5, n=2)), await collect(engine, [1, 2, 3], greedy(5))

    failed, later = run(story)
    assert [(delta.sample, delta.finish_reason) for delta in failed] == [(0, "error"), (1, "error")]
    assert all("the device is gone" in delta.error for delta in failed)
    assert ids(later) == reply_to([1, 2, 3], 5)
    assert num_referenced(engine) == 0


def test_a_fault_of_the_engine_itself_leaves_nobody_waiting(workshop, caplog, monkeypatch):
    caplog.set_level(logging.CRITICAL)
    engine = workshop.make()

    def broken() -> None:
        raise AssertionError("block 5 counts 2 holders and has 1")

    async def story() -> list[list[TokenDelta]]:
        streams = [asyncio.create_task(collect(engine, [i], greedy(1500, n=2))) for i in range(2)]
        await until(lambda: len(workshop.runner.steps) > 3)
        monkeypatch.setattr(workshop.engine._core, "check_integrity", broken)
        return await asyncio.gather(*streams)

    for deltas in run(story):
        ends = [delta for delta in deltas if delta.finish_reason]
        assert sorted((delta.sample, delta.finish_reason) for delta in ends) == [(0, "error"), (1, "error")]
        assert all("block 5 counts 2 holders" in delta.error for delta in ends)
    with pytest.raises(EngineClosed, match="block 5 counts 2 holders"):
        engine.call(lambda own: own.snapshot()).result(PATIENCE_S)
    engine.close()
    assert workshop.engine.was_closed


def test_a_listener_that_raises_hurts_nobody(workshop, caplog):
    caplog.set_level(logging.CRITICAL)
    engine = workshop.make()

    def listener(delta: TokenDelta) -> None:
        raise ValueError("a bug of the screen")

    engine.submit([1, 2], greedy(5), listener).result(PATIENCE_S)
    assert ids(run(lambda: collect(engine, [3, 4], greedy(9)))) == reply_to([3, 4], 9)


def test_a_listener_gets_every_delta_and_the_future_the_id(workshop):
    engine = workshop.make()
    heard, done = [], threading.Event()

    def listener(delta: TokenDelta) -> None:
        heard.append(delta)
        if delta.finish_reason:
            done.set()

    request_id = engine.submit([1, 2], greedy(5), listener).result(PATIENCE_S)
    assert done.wait(PATIENCE_S)
    assert {delta.request_id for delta in heard} == {request_id}
    assert ids(heard) == reply_to([1, 2], 5)


def test_a_call_that_raises_says_so_to_its_caller_only(workshop):
    engine = workshop.make()
    with pytest.raises(ZeroDivisionError):
        engine.call(lambda own: 1 / 0).result(PATIENCE_S)
    assert num_referenced(engine) == 0


def test_a_request_submitted_through_a_call_does_not_stop_the_engine(workshop, caplog):
    """Nobody listens to it; those who do listen to others go on."""
    caplog.set_level(logging.CRITICAL)
    engine = workshop.make()
    engine.call(lambda own: own.submit([7, 8], greedy(3))).result(PATIENCE_S)
    assert ids(run(lambda: collect(engine, [3, 4], greedy(9)))) == reply_to([3, 4], 9)


# From other threads


def test_probes_and_snapshots_come_from_any_thread_while_replies_stream(workshop):
    engine = workshop.make()
    faults = []

    def look() -> int:
        for _ in range(50):
            probe = engine.call(lambda own: own.probe(list(range(40)))).result(PATIENCE_S)
            snapshot = engine.call(lambda own: own.snapshot()).result(PATIENCE_S)
            if snapshot.num_free + snapshot.num_cached + snapshot.num_referenced != snapshot.num_blocks - 1:
                faults.append(snapshot)
        return probe.num_cached_tokens

    async def story() -> None:
        looking = [asyncio.to_thread(look) for _ in range(3)]
        streaming = [collect(engine, [*range(40 - i)], greedy(40)) for i in range(3)]
        await asyncio.gather(*looking, *streaming)

    run(story)
    assert faults == []
    assert run(lambda: asyncio.to_thread(look)) == 39


def test_calls_run_on_the_engines_own_thread(workshop):
    engine = workshop.make()
    names = {engine.call(lambda own: threading.current_thread().name).result(PATIENCE_S) for _ in range(3)}
    assert len(names) == 1
    assert threading.current_thread().name not in names


def test_an_idle_engine_sleeps(workshop):
    engine = workshop.make()
    run(lambda: collect(engine, [1, 2], greedy(3)))
    steps = len(workshop.runner.steps)
    num_events = workshop.engine.snapshot().num_events
    time.sleep(0.1)
    assert (len(workshop.runner.steps), workshop.engine.snapshot().num_events) == (steps, num_events)


# Loading


def test_what_is_asked_while_it_loads_waits_its_turn(workshop):
    workshop.may_load.clear()
    engine = workshop.make()

    async def story() -> list[TokenDelta]:
        task = asyncio.create_task(collect(engine, [1, 2, 3], greedy(4)))
        await asyncio.sleep(0.02)
        assert not task.done()
        workshop.may_load.set()
        return await task

    assert ids(run(story)) == reply_to([1, 2, 3], 4)


def test_ready_gives_the_loaded_engine(workshop):
    engine = workshop.make()
    assert run(engine.ready) is workshop.engine


def test_giving_up_on_ready_takes_the_engine_from_nobody(workshop):
    workshop.may_load.clear()
    engine = workshop.make()

    async def story() -> list[TokenDelta]:
        patient = asyncio.create_task(engine.ready())
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02):
                await engine.ready()
        workshop.may_load.set()
        assert await patient is workshop.engine
        assert await engine.ready() is workshop.engine
        return await collect(engine, [1, 2, 3], greedy(4))

    assert ids(run(story)) == reply_to([1, 2, 3], 4)


def test_a_failed_load_reaches_everyone_who_asks(workshop):
    workshop.may_load.clear()
    engine = workshop.make(load_error=ModelNotFound("there is no model 'x'"))

    async def story() -> list[BaseException]:
        early = [
            asyncio.create_task(engine.ready()),
            asyncio.create_task(collect(engine, [1], greedy(2))),
            asyncio.ensure_future(asyncio.wrap_future(engine.call(lambda own: own.snapshot()))),
        ]
        await asyncio.sleep(0.02)
        workshop.may_load.set()
        failures = await asyncio.gather(*early, return_exceptions=True)
        late = [engine.ready(), collect(engine, [1], greedy(2)), asyncio.wrap_future(engine.abort("r1"))]
        return failures + await asyncio.gather(*late, return_exceptions=True)

    failures = run(story)
    assert [str(failure) for failure in failures] == ["there is no model 'x'"] * 6
    assert all(isinstance(failure, ModelNotFound) for failure in failures)


def test_an_engine_that_failed_to_load_can_be_closed(workshop):
    engine = workshop.make(load_error=ModelNotFound("no"))
    engine.close()
    engine.close()
    with pytest.raises(PagedChatError):
        engine.call(lambda own: own.snapshot()).result(PATIENCE_S)


# Closing


def test_close_ends_streams_with_abort(workshop):
    engine = workshop.make()

    async def story() -> list[TokenDelta]:
        task = asyncio.create_task(collect(engine, [1, 2, 3], greedy(1500, n=2)))
        await until(lambda: len(workshop.runner.steps) > 3)
        await asyncio.to_thread(engine.close)
        return await task

    deltas = run(story)
    assert sorted((delta.sample, delta.finish_reason) for delta in deltas if delta.finish_reason) == [
        (0, "abort"),
        (1, "abort"),
    ]
    assert workshop.engine.was_closed
    assert workshop.engine._core.snapshot().num_referenced == 0


def test_a_closed_engine_refuses_everything(workshop):
    engine = workshop.make()
    engine.close()
    engine.close()

    async def story() -> None:
        with pytest.raises(EngineClosed):
            await collect(engine, [1], greedy(2))

    run(story)
    for future in (
        engine.call(lambda own: own.snapshot()),
        engine.abort("r1"),
        engine.submit([1], greedy(2), lambda delta: None),
    ):
        with pytest.raises(EngineClosed):
            future.result(PATIENCE_S)


def test_closing_while_it_loads_refuses_or_ends_what_was_asked(workshop):
    workshop.may_load.clear()
    engine = workshop.make()

    async def story() -> list[TokenDelta]:
        task = asyncio.create_task(collect(engine, [1, 2, 3], greedy(1500)))
        await asyncio.sleep(0.02)
        closing = asyncio.create_task(asyncio.to_thread(engine.close))
        await asyncio.sleep(0.02)
        workshop.may_load.set()
        await closing
        return await task

    deltas = run(story)
    assert deltas[-1].finish_reason == "abort"
    assert workshop.engine.was_closed


def test_leaving_the_async_with_block_closes(workshop):
    async def story() -> None:
        async with workshop.make() as engine:
            assert ids(await collect(engine, [1], greedy(2))) == reply_to([1], 2)
        with pytest.raises(EngineClosed):
            await collect(engine, [1], greedy(2))

    run(story)
    assert workshop.engine.was_closed


def test_the_thread_ends_with_the_engine(workshop):
    before = {thread.ident for thread in threading.enumerate()}
    engine = workshop.make()
    run(engine.ready)
    engine.close()
    left = [t.name for t in threading.enumerate() if t.ident not in before and "paged-chat" in t.name]
    assert left == []
