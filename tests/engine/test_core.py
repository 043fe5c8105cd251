"""The core under random load.

Whatever shares, parts, is evicted, preempted, stopped or fails: each reply is the one that the model gives alone.
"""

from dataclasses import replace

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings
from torch import Tensor

from cache_driver import WorstHasher
from foretelling import ForetellingDrafter
from paged_chat.engine.batch import Batch
from paged_chat.engine.cache.block_hash import BlockHasher
from paged_chat.engine.request import SamplingParams
from slot_runner import Listener, SlotRunner, ask, greedy, make_core, preempt, reply_to

FEW = settings(deadline=None, suppress_health_check=list(HealthCheck))
HASHERS = (BlockHasher(), BlockHasher(bits=8), WorstHasher())


@st.composite
def prompts(draw: st.DrawFn) -> list[list[int]]:
    """Chats that part and go on: each prompt continues a beginning of an earlier one."""
    drawn: list[list[int]] = [[]]
    for _ in range(draw(st.integers(1, 8))):
        base = draw(st.sampled_from(drawn))
        kept = base[: draw(st.integers(0, len(base)))]
        drawn.append((kept + draw(st.lists(st.integers(0, 2), min_size=1, max_size=10)))[:24])
    return drawn[1:]


@st.composite
def params(draw: st.DrawFn) -> SamplingParams:
    is_greedy = draw(st.booleans())
    return SamplingParams(
        temperature=0.0 if is_greedy else draw(st.sampled_from((0.7, 1.2))),
        top_k=draw(st.sampled_from((0, 5))),
        top_p=draw(st.sampled_from((1.0, 0.8))),
        repetition_penalty=draw(st.sampled_from((1.0, 1.3))),
        frequency_penalty=draw(st.sampled_from((0.0, 0.4))),
        max_tokens=draw(st.integers(1, 8)),
        n=draw(st.integers(1, 3)),
        seed=draw(st.integers(0, 3)),
    )


def drafters() -> st.SearchStrategy[ForetellingDrafter | None]:
    """Nothing guessed ahead, or drafts of any length, of which any beginning is right."""
    return st.none() | st.builds(ForetellingDrafter, seed=st.integers(0, 100))


@settings(FEW, max_examples=100)
@given(data=st.data(), asked=prompts(), hasher=st.sampled_from(HASHERS))
def test_every_reply_is_the_one_the_model_gives_alone(data, asked, hasher):
    block_size = data.draw(st.sampled_from((1, 2, 4)), label="block_size")
    runner = SlotRunner(block_size)
    core = make_core(
        runner,
        num_blocks=data.draw(st.integers(-(-32 // block_size), 96 // block_size), label="num_blocks") + 1,
        block_size=block_size,
        max_num_seqs=data.draw(st.integers(3, 6), label="max_num_seqs"),
        max_num_batched_tokens=data.draw(st.sampled_from((1, 3, 8, 64)), label="budget"),
        watermark_blocks=data.draw(st.integers(0, 2), label="watermark"),
        hasher=hasher,
        drafter=data.draw(drafters()),
    )
    listener = Listener(core)
    submitted = {}
    for prompt in asked:
        own = data.draw(params())
        salt = data.draw(st.sampled_from(("", "ann")))
        submitted[core.submit(prompt, own, salt=salt)] = (prompt, own)
        for _ in range(data.draw(st.integers(0, 4), label="steps")):
            listener.step()
        if core.scheduler.running and data.draw(st.booleans(), label="preempt"):
            sequence = data.draw(st.sampled_from(core.scheduler.running))
            preempt(core, sequence.request_id, sequence.sample)
            core.check_integrity()
    listener.run()
    for request_id, (prompt, own) in submitted.items():
        for sample in range(own.n):
            heard = listener.reply(request_id, sample)
            alone = ask(make_core(prefix_caching=False), prompt, replace(own, n=1, seed=own.seed + sample))
            assert (heard.token_ids, heard.finish_reason) == (alone.token_ids, "length")
            assert heard.stats.num_generated_tokens == own.max_tokens
    snapshot = core.snapshot()
    assert snapshot.num_referenced == 0
    assert snapshot.num_free + snapshot.num_cached == snapshot.num_blocks - 1
    assert snapshot.hits + snapshot.misses == sum(len(prompt) for prompt in asked)


@settings(FEW, max_examples=60)
@given(data=st.data(), asked=prompts())
def test_stops_and_faults_end_their_own_requests_only(data, asked):
    runner = SlotRunner(2)
    core = make_core(
        runner, num_blocks=24, block_size=2, max_num_seqs=4, max_num_batched_tokens=6, drafter=data.draw(drafters())
    )
    listener = Listener(core)
    submitted = {}
    for prompt in asked:
        own = greedy(6, n=data.draw(st.integers(1, 2)))
        submitted[core.submit(prompt, own)] = (prompt, own)
        for _ in range(data.draw(st.integers(0, 3), label="steps")):
            listener.step()
        what = data.draw(st.sampled_from(("nothing", "abort", "abort one reply", "fail")), label="what")
        if what == "abort":
            core.abort(data.draw(st.sampled_from(sorted(submitted))))
        elif what == "abort one reply":
            aborted = data.draw(st.sampled_from(sorted(submitted)))
            core.abort(aborted, sample=data.draw(st.integers(0, submitted[aborted][1].n - 1)))
        elif what == "fail":
            runner.failures.append(RuntimeError("a bad step"))
    listener.run()
    for request_id, (prompt, own) in submitted.items():
        whole = reply_to(prompt, 6)
        for sample in range(own.n):
            heard = listener.reply(request_id, sample)
            assert heard.finish_reason in ("length", "abort", "error")
            assert tuple(heard.token_ids) == whole[: len(heard.token_ids)]
            assert (heard.finish_reason == "length") == (len(heard.token_ids) == 6)
    assert core.snapshot().num_referenced == 0
    runner.failures.clear()
    assert tuple(ask(core, asked[-1], greedy(6)).token_ids) == reply_to(asked[-1], 6)


class Clock:
    """Stands for the module `time`; only what a step computes takes any."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def perf_counter(self) -> float:
        return self.now_s


class TimedRunner(SlotRunner):
    """Takes 4 ms for a step, and 1 ms for each of its tokens."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock = clock

    def execute(self, batch: Batch) -> Tensor:
        self.clock.now_s += 0.004 + 0.001 * len(batch.input_ids)
        return super().execute(batch)


def test_a_prompt_is_expected_to_take_what_prompts_have_taken(monkeypatch):
    clock = Clock()
    monkeypatch.setattr("paged_chat.engine.core.time", clock)
    core = make_core(TimedRunner(clock), max_num_batched_tokens=64)
    assert core.expected_ttft(40, 0) is None
    for number, length in enumerate((20, 30, 50, 64)):
        ask(core, [number] * length, greedy(2))
    for num_new, num_cached, num_steps in ((40, 0, 1), (40, 100, 1), (200, 0, 4), (1, 100, 1)):
        expected = core.expected_ttft(num_cached + num_new, num_cached)
        assert expected.seconds == pytest.approx(0.004 * num_steps + 0.001 * num_new, rel=1e-3)
    # Four single tokens and two short prompts: nothing near 8.
    assert core.expected_ttft(8, 0) is None
