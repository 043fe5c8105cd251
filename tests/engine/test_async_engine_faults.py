"""Faults below an async engine: a step that raises, a listener, a call; nobody else is hurt."""

import asyncio
import logging
import threading

import pytest

from engine_workshop import collect, ids, num_referenced, run, until
from paged_chat.engine import TokenDelta
from paged_chat.engine.errors import EngineClosed
from patience import PATIENCE_S
from slot_runner import greedy, reply_to


def test_a_step_that_raises_ends_its_requests_and_the_engine_lives_on(workshop, caplog):
    caplog.set_level(logging.CRITICAL)
    engine = workshop.make()
    # Of the step, and of the one in which the prompt that both replies come from is tried alone.
    workshop.runner.failures += [RuntimeError("the device is gone")] * 2

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
