"""The engine on a thread of its own: many streams at once, stops, faults, loading and closing."""

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from engine_workshop import collect, ids, num_referenced, run, until
from paged_chat.engine import SamplingParams, TokenDelta
from paged_chat.engine.errors import EmptyPrompt
from patience import PATIENCE_S
from slot_runner import greedy, reply_to

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
        await asyncio.sleep(0)  # it asks; the engine is in a step that doesn't end
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
