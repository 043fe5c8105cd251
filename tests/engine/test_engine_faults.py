"""Steps that raise or are interrupted, and engines that are closed."""

import gc
import logging
import math
import subprocess
import sys
import weakref

import pytest
import torch

import little_memory
from paged_chat.engine import Engine, EngineConfig
from paged_chat.engine.batch import Batch
from paged_chat.engine.errors import EngineClosed, OutOfMemory, StepFailed
from paged_chat.engine.model.memory import is_out_of_memory
from patience import PATIENCE_S
from replies import all_steps, ask, greedy, ids_of, reply_ids

PROMPT = [1, *((7 * i) % 300 + 3 for i in range(199))]


class FaultyRunner:
    """Raises what is enqueued before it lets the real runner compute."""

    def __init__(self, engine: Engine) -> None:
        self.faults: list[BaseException] = []
        core = engine._open_core()
        self._real = core._runner
        core._runner = self

    def execute(self, batch: Batch) -> torch.Tensor:
        if self.faults:
            raise self.faults.pop(0)
        return self._real.execute(batch)

    def find_faulty_layer(self, batch: Batch) -> int | None:
        return self._real.find_faulty_layer(batch)


# Faults


def test_steps_that_raise_with_everyone_in_them_end_everyone_with_the_reason(engine, caplog):
    caplog.set_level(logging.CRITICAL)
    runner = FaultyRunner(engine)
    first = engine.submit(PROMPT[:20], greedy(5))
    second = engine.submit(PROMPT[50:70], greedy(5, n=2))
    engine.step()
    runner.faults += [RuntimeError("the device is gone")] * 4  # of all three together, then of each alone
    deltas = [delta for delta in all_steps(engine) if delta.finish_reason]
    assert sorted((delta.request_id, delta.sample, delta.finish_reason) for delta in deltas) == [
        (first, 0, "error"),
        (second, 0, "error"),
        (second, 1, "error"),
    ]
    assert all("RuntimeError: the device is gone" in delta.error for delta in deltas)
    assert not engine.has_unfinished
    assert engine.snapshot().num_referenced == 0


def test_a_step_that_raises_once_is_noticed_by_nobody(engine, make_engine, caplog):
    caplog.set_level(logging.CRITICAL)
    runner = FaultyRunner(engine)
    expected = reply_ids(make_engine(), PROMPT[:40], greedy(5))
    runner.faults.append(RuntimeError("out of luck"))
    assert reply_ids(engine, PROMPT[:40], greedy(5)) == expected
    assert reply_ids(engine, PROMPT[:40], greedy(5)) == expected


def test_after_a_request_has_failed_the_engine_lives_on_and_replies_are_right(engine, make_engine, caplog):
    caplog.set_level(logging.CRITICAL)
    runner = FaultyRunner(engine)
    runner.faults += [RuntimeError("out of luck")] * 2
    with pytest.raises(StepFailed, match="out of luck"):
        ask(engine, PROMPT[:40], greedy(5))
    assert reply_ids(engine, PROMPT[:40], greedy(5)) == reply_ids(make_engine(), PROMPT[:40], greedy(5))


def test_a_request_that_was_not_in_the_failed_steps_goes_on(make_engine, caplog):
    caplog.set_level(logging.CRITICAL)
    engine = make_engine(max_num_seqs=1)
    runner = FaultyRunner(engine)
    first, second = engine.submit(PROMPT[:20], greedy(3)), engine.submit(PROMPT[50:70], greedy(3))
    runner.faults += [RuntimeError("again")] * 2
    deltas = all_steps(engine)
    assert [delta.finish_reason for delta in deltas if delta.request_id == first] == ["error"]
    assert ids_of(deltas, second) == reply_ids(make_engine(), PROMPT[50:70], greedy(3))


@pytest.mark.parametrize("num_common", [0, 25, 31])
def test_an_interrupt_in_the_middle_of_a_step_leaves_nothing_half_written(engine, make_engine, num_common):
    """Ctrl-C may fall between the copy of a block and its use, or before it: what was to be written is unknown."""
    runner = FaultyRunner(engine)
    ask(engine, PROMPT[:32], greedy(1))
    prompt = [*PROMPT[:num_common], *PROMPT[100:120]]
    runner.faults.append(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        ask(engine, prompt, greedy(5))
    engine.check_integrity()
    assert engine.snapshot().num_referenced == 0
    assert not engine.has_unfinished
    assert reply_ids(engine, prompt, greedy(5)) == reply_ids(make_engine(), prompt, greedy(5))


def test_an_interrupt_before_a_copy_whose_source_was_given_up(make_engine):
    engine = make_engine(num_blocks=3)
    runner = FaultyRunner(engine)
    ask(engine, PROMPT[:16], greedy(1))
    prompt = [*PROMPT[:15], *PROMPT[100:110]]
    runner.faults.append(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        ask(engine, prompt, greedy(5))
    assert reply_ids(engine, prompt, greedy(5)) == reply_ids(make_engine(), prompt, greedy(5))


@pytest.mark.parametrize("num_common", [0, 25, 31])
def test_an_interrupted_step_ends_the_submitted_requests_in_it(engine, make_engine, num_common):
    runner = FaultyRunner(engine)
    ask(engine, PROMPT[:32], greedy(1))
    prompt = [*PROMPT[:num_common], *PROMPT[100:120]]
    request_id = engine.submit(prompt, greedy(5))
    runner.faults.append(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        engine.step()
    [delta] = all_steps(engine)
    assert (delta.request_id, delta.token_ids, delta.finish_reason) == (request_id, (), "abort")
    assert engine.snapshot().num_referenced == 0
    assert reply_ids(engine, prompt, greedy(5)) == reply_ids(make_engine(), prompt, greedy(5))


# Closing


def test_a_closed_engine_says_so(make_engine):
    engine = make_engine()
    engine.close()
    engine.close()
    for call in (
        lambda: engine.generate([PROMPT[:5]]),
        lambda: engine.submit(PROMPT[:5]),
        lambda: engine.step(),
        lambda: engine.abort("r1"),
        lambda: engine.probe(PROMPT[:5]),
        lambda: engine.snapshot(),
        lambda: engine.events(),
        lambda: engine.check_integrity(),
        lambda: engine.max_model_len,
        lambda: engine.model,
    ):
        with pytest.raises(EngineClosed, match="closed"):
            call()
    assert not engine.has_unfinished


def test_leaving_the_with_block_closes(tiny_model):
    with Engine(EngineConfig(model=str(tiny_model()), device="cpu", dtype="float32", num_blocks=8)) as engine:
        ask(engine, PROMPT[:5], greedy(1))
    with pytest.raises(EngineClosed):
        engine.snapshot()


def test_a_closed_engine_gives_back_its_memory(make_engine):
    engine = make_engine()
    pool = weakref.ref(engine._core._runner._kv_cache.pool)
    engine.close()
    gc.collect()
    assert pool() is None


def test_the_time_to_load_is_told(engine):
    assert 0 < engine.load_s < 60
    assert math.isfinite(engine.load_s)


# Memory


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes")]
)
def test_memory_that_runs_out_on_load_is_said_in_words(make_engine, monkeypatch, error):
    def refuse(*_):
        raise error

    monkeypatch.setattr("paged_chat.engine.engine.build_core", refuse)
    with pytest.raises(OutOfMemory, match=r"^memory ran out while the model was loaded: choose a smaller model"):
        make_engine()


def test_an_allocation_that_torch_refuses_is_known_by_its_words():
    with pytest.raises(RuntimeError) as refused:
        torch.empty(2**60, dtype=torch.uint8)
    assert is_out_of_memory(refused.value)
    assert is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory"))
    assert not is_out_of_memory(RuntimeError("the device is gone"))


@pytest.mark.skipif(sys.platform != "linux", reason="a limit of the address space holds on Linux alone")
def test_where_memory_really_runs_out_in_a_step_only_the_prompt_that_needs_it_fails(tiny_model):
    told = subprocess.run(
        [sys.executable, little_memory.__file__, tiny_model()],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert told.returncode == 0, told.stderr
