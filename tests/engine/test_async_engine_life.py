"""An async engine that loads, fails to load, and is closed."""

import asyncio
import threading

import pytest

from engine_workshop import collect, ids, run, until
from paged_chat.engine import PagedChatError, TokenDelta
from paged_chat.engine.errors import EngineClosed, ModelNotFound
from patience import PATIENCE_S
from slot_runner import greedy, reply_to

# Loading


def test_what_is_asked_while_it_loads_waits_its_turn(workshop):
    workshop.may_load.clear()
    engine = workshop.make()

    async def story() -> list[TokenDelta]:
        task = asyncio.create_task(collect(engine, [1, 2, 3], greedy(4)))
        await asyncio.sleep(0)  # it asks
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
        await asyncio.sleep(0)  # all three ask
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
        await asyncio.sleep(0)  # it asks
        closing = asyncio.create_task(asyncio.to_thread(engine.close))
        await until(lambda: engine._is_closed)
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
