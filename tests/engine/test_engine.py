"""The engine as a program calls it, on a tiny model with random weights. Blocks hold 16 tokens."""

import gc
import logging
import math
import weakref

import pytest
import torch

from paged_chat.engine import ChatMessage, Engine, EngineConfig, PagedChatError, PrefixProbe, SamplingParams
from paged_chat.engine.batch import Batch
from paged_chat.engine.errors import (
    EmptyPrompt,
    EngineClosed,
    InvalidParameter,
    ModelNotFound,
    OutOfMemory,
    PromptTooLong,
    StepFailed,
    TokenizerMissing,
)
from replies import all_steps, ask, greedy, ids_of, reply_ids, transformers_model, transformers_reply

PROMPT = [1, *((7 * i) % 300 + 3 for i in range(199))]


@pytest.fixture
def engine(make_engine) -> Engine:
    return make_engine()


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


# Whole replies


@pytest.mark.parametrize("kernels", ["cpu", "reference"])
def test_a_greedy_reply_is_transformers_own(make_engine, tiny_model, kernels):
    engine = make_engine(kernels=kernels)
    output = ask(engine, PROMPT[:40], greedy(12))
    assert output.samples[0].token_ids == transformers_reply(transformers_model(tiny_model()), PROMPT[:40], 12)
    assert output.samples[0].finish_reason == "length"
    assert (output.num_prompt_tokens, output.num_cached_tokens) == (40, 0)


def test_outputs_come_in_the_prompts_order_and_are_those_of_each_alone(engine, make_engine):
    prompts = [PROMPT[:50], PROMPT[20:25], PROMPT[3:4], PROMPT[:50]]
    params = [greedy(3), greedy(9), greedy(5), greedy(7)]
    outputs = engine.generate(prompts, params)
    alone = make_engine(prefix_caching=False)
    assert [output.samples[0].token_ids for output in outputs] == [
        reply_ids(alone, prompt, own) for prompt, own in zip(prompts, params, strict=True)
    ]
    assert [output.num_prompt_tokens for output in outputs] == [50, 5, 1, 50]


def test_one_set_of_parameters_serves_all_prompts(engine):
    outputs = engine.generate([PROMPT[:5], PROMPT[:9]], greedy(4))
    assert [len(output.samples[0].token_ids) for output in outputs] == [4, 4]


def test_no_prompts_give_no_outputs(engine):
    assert engine.generate([], greedy(4)) == []


def test_prompts_and_parameters_must_be_as_many(engine):
    with pytest.raises(InvalidParameter, match="2 prompts"):
        engine.generate([PROMPT[:5], PROMPT[:9]], [greedy(4)])


def test_a_prompt_is_not_changed_and_may_be_any_sequence(engine):
    prompt = tuple(PROMPT[:20])
    assert ask(engine, prompt, greedy(3)).samples[0].token_ids == reply_ids(engine, list(prompt), greedy(3))
    listed = PROMPT[:20]
    ask(engine, listed, greedy(3))
    assert listed == PROMPT[:20]


def test_n_replies_come_as_samples_0_to_n(engine):
    output = ask(engine, PROMPT[:20], SamplingParams(n=3, temperature=1.0, seed=5, max_tokens=6, ignore_eos=True))
    assert [sample.index for sample in output.samples] == [0, 1, 2]
    assert [len(sample.token_ids) for sample in output.samples] == [6, 6, 6]


def test_without_a_tokenizer_texts_are_empty(engine):
    assert ask(engine, PROMPT[:5], greedy(3)).samples[0].text == ""


# How a reply ends


def test_a_stop_token_id_ends_a_reply_and_is_its_last_token(engine):
    whole = reply_ids(engine, PROMPT[:20], greedy(10))
    wanted = next(token_id for token_id in whole[2:] if token_id not in whole[:2])
    [sample] = ask(engine, PROMPT[:20], greedy(10, stop_token_ids=[wanted])).samples
    assert sample.token_ids == whole[: whole.index(wanted) + 1]
    assert sample.finish_reason == "stop"


def test_the_models_own_end_token_ends_a_reply_unless_it_is_ignored(make_engine):
    whole = reply_ids(make_engine(), PROMPT[:20], greedy(10))
    wanted = next(token_id for token_id in whole[2:] if token_id not in whole[:2])
    engine = make_engine(overrides={"eos_token_id": wanted})
    [sample] = ask(engine, PROMPT[:20], SamplingParams(max_tokens=10)).samples
    assert (sample.token_ids, sample.finish_reason) == (whole[: whole.index(wanted) + 1], "stop")
    [sample] = ask(engine, PROMPT[:20], SamplingParams(max_tokens=10, ignore_eos=True)).samples
    assert (sample.token_ids, sample.finish_reason) == (whole, "length")


def test_the_window_ends_a_reply(make_engine):
    engine = make_engine(max_model_len=50)
    assert engine.max_model_len == 50
    [sample] = ask(engine, PROMPT[:40], greedy(500)).samples
    assert (len(sample.token_ids), sample.finish_reason) == (10, "length")
    [sample] = ask(engine, PROMPT[:49], SamplingParams(max_tokens=None, ignore_eos=True)).samples
    assert (len(sample.token_ids), sample.finish_reason) == (1, "length")


def test_a_small_pool_ends_a_reply_where_it_is_full(make_engine):
    engine = make_engine(num_blocks=4)
    [sample] = ask(engine, PROMPT[:40], greedy(500)).samples
    # 48 tokens have their KV in the pool; the last one needs none.
    assert (len(sample.token_ids), sample.finish_reason) == (9, "length")
    assert engine.max_model_len == 49


# What is refused


def test_an_empty_prompt_is_refused(engine):
    with pytest.raises(EmptyPrompt, match="at least one token"):
        engine.submit([])


@pytest.mark.parametrize("token_id", [-1, 320, 10**12, 1.0, "5", None, True])
def test_an_id_outside_the_vocabulary_is_refused(engine, token_id):
    with pytest.raises(InvalidParameter, match=r"0 to 319"):
        engine.submit([5, token_id, 6])


def test_a_prompt_that_leaves_no_room_in_the_window_is_refused_with_both_numbers(make_engine):
    engine = make_engine(max_model_len=64)
    for length in (64, 65, 199):
        with pytest.raises(PromptTooLong, match=rf"{length} tokens.* 64"):
            engine.submit(PROMPT[:length])


def test_more_replies_than_places_are_refused(make_engine):
    with pytest.raises(InvalidParameter, match=r"n is 5.*4"):
        make_engine(max_num_seqs=4).submit(PROMPT[:5], greedy(3, n=5))


def test_stop_strings_need_a_tokenizer(engine):
    with pytest.raises(InvalidParameter, match="tokenizer"):
        engine.submit(PROMPT[:5], SamplingParams(stop="end"))


def test_text_needs_a_tokenizer(engine):
    for call in (
        lambda: engine.tokenizer,
        lambda: engine.encode("a"),
        lambda: engine.decode([5]),
        lambda: engine.encode_chat([ChatMessage("user", "a")]),
        lambda: engine.generate(["a"]),
    ):
        with pytest.raises(TokenizerMissing, match=r"tokenizer\.json"):
            call()


def test_one_refused_prompt_refuses_the_call_before_anything_is_computed(engine):
    with pytest.raises(EmptyPrompt):
        engine.generate([PROMPT[:20], []], greedy(3))
    assert not engine.has_unfinished
    snapshot = engine.snapshot()
    assert (snapshot.hits, snapshot.misses, snapshot.num_free) == (0, 0, 63)


def test_every_refusal_is_a_paged_chat_error():
    for error in (EmptyPrompt, PromptTooLong, InvalidParameter, TokenizerMissing, EngineClosed, StepFailed):
        assert issubclass(error, PagedChatError)


def test_a_model_that_is_not_there_is_refused_by_name(tmp_path):
    with pytest.raises(ModelNotFound, match="no-such-model"):
        Engine(EngineConfig(model=str(tmp_path / "no-such-model")))


def test_a_pool_larger_than_memory_is_refused(make_engine):
    with pytest.raises(OutOfMemory, match="num_blocks"):
        make_engine(num_blocks=2**31 - 1)


# Step by step


def test_a_submitted_request_streams_a_token_a_step(engine):
    request_id = engine.submit(PROMPT[:20], greedy(4))
    deltas = [engine.step() for _ in range(4)]
    assert [len(step) for step in deltas] == [1, 1, 1, 1]
    assert [step[0].request_id for step in deltas] == [request_id] * 4
    assert [step[0].finish_reason for step in deltas] == [None, None, None, "length"]
    assert [step[0].stats is not None for step in deltas] == [False, False, False, True]
    assert not engine.has_unfinished
    assert engine.step() == []


def test_abort_ends_a_request_and_the_next_step_says_so(engine):
    request_id = engine.submit(PROMPT[:20], greedy(100))
    engine.step()
    assert engine.abort(request_id) is True
    assert engine.snapshot().num_referenced == 0
    assert engine.has_unfinished
    [delta] = engine.step()
    assert (delta.request_id, delta.token_ids, delta.finish_reason) == (request_id, (), "abort")
    assert delta.stats.num_generated_tokens == 1
    assert not engine.has_unfinished
    assert engine.abort(request_id) is False
    assert engine.abort("r999") is False


def test_abort_before_the_first_step_ends_every_sample(engine):
    request_id = engine.submit(PROMPT[:20], greedy(100, n=3))
    engine.abort(request_id)
    deltas = engine.step()
    assert sorted((delta.sample, delta.finish_reason) for delta in deltas) == [(i, "abort") for i in range(3)]
    assert not engine.has_unfinished


def test_one_of_three_replies_ends_alone_and_gives_its_blocks_back(engine):
    request_id = engine.submit(PROMPT[:20], greedy(40, n=3))
    assert engine.abort(request_id, sample=1) is False  # they haven't parted yet
    engine.step()
    engine.step()
    assert engine.snapshot().num_referenced == 4  # the full block of the prompt, and a tail for each
    assert engine.abort(request_id, sample=1) is True
    assert engine.snapshot().num_referenced == 3
    assert engine.abort(request_id, sample=1) is False
    deltas = all_steps(engine)
    ends = sorted((delta.sample, delta.finish_reason) for delta in deltas if delta.finish_reason)
    assert ends == [(0, "length"), (1, "abort"), (2, "length")]
    assert ids_of(deltas, request_id, 0) == ids_of(deltas, request_id, 2)
    assert engine.snapshot().num_referenced == 0
    assert engine.abort(request_id, sample=0) is False


def test_abort_in_the_middle_of_a_prompt_keeps_what_was_computed(make_engine):
    engine = make_engine(max_num_batched_tokens=24)
    request_id = engine.submit(PROMPT[:100], greedy(5))
    engine.step()
    engine.abort(request_id)
    assert engine.probe(PROMPT[:100]).num_cached_tokens == 24
    assert ask(engine, PROMPT[:100], greedy(5)).num_cached_tokens == 24


def test_generate_leaves_the_deltas_of_submitted_requests_to_their_caller(engine, make_engine):
    request_id = engine.submit(PROMPT[:20], greedy(12))
    first = engine.step()
    output = ask(engine, PROMPT[50:60], greedy(6))
    assert len(output.samples[0].token_ids) == 6
    deltas = first + all_steps(engine)
    assert ids_of(deltas, request_id) == reply_ids(make_engine(), PROMPT[:20], greedy(12))
    assert [delta.finish_reason for delta in deltas].count("length") == 1


def test_a_request_submitted_while_others_run_joins_them(engine, make_engine):
    first = engine.submit(PROMPT[:20], greedy(10))
    deltas = [delta for _ in range(3) for delta in engine.step()]
    second = engine.submit(PROMPT[100:130], greedy(10))
    deltas += all_steps(engine)
    alone = make_engine()
    assert ids_of(deltas, first) == reply_ids(alone, PROMPT[:20], greedy(10))
    assert ids_of(deltas, second) == reply_ids(alone, PROMPT[100:130], greedy(10))


# Figures


def test_probe_says_what_a_request_would_reuse(engine):
    assert engine.probe(PROMPT[:40]).num_cached_tokens == 0
    ask(engine, PROMPT[:40], greedy(1))
    before = engine.snapshot()
    assert engine.probe(PROMPT[:40]) == PrefixProbe(39, 2, 39)
    parted = engine.probe([*PROMPT[:20], 5, 5, 5])
    assert (parted.num_cached_tokens, parted.num_cached_blocks, parted.first_missing_token) == (20, 1, 20)
    assert engine.snapshot() == before
    assert ask(engine, [*PROMPT[:20], 5, 5, 5], greedy(1)).num_cached_tokens == 20


def test_the_snapshot_in_the_middle_of_a_request_and_after_it(engine):
    engine.submit(PROMPT[:40], greedy(5, n=2))
    engine.step()
    snapshot = engine.snapshot()
    assert (snapshot.num_blocks, snapshot.block_size) == (64, 16)
    # Keys and values, 2 layers, 2 heads of 16 features, 16 tokens, 4 bytes.
    assert snapshot.block_bytes == 2 * 2 * 2 * 16 * 16 * 4
    assert (snapshot.num_free, snapshot.num_cached, snapshot.num_referenced, snapshot.num_shared) == (60, 0, 3, 3)
    assert snapshot.ref_counts[:5] == (0, 2, 2, 2, 0)
    assert (snapshot.num_running, snapshot.num_waiting) == (2, 0)
    all_steps(engine)
    snapshot = engine.snapshot()
    assert (snapshot.num_referenced, snapshot.num_shared, snapshot.num_running) == (0, 0, 0)
    assert snapshot.num_free + snapshot.num_cached == 63
    assert (snapshot.hits, snapshot.misses, snapshot.copies, snapshot.evictions) == (0, 40, 1, 0)
    assert snapshot.hit_rate == 0
    ask(engine, PROMPT[:40], greedy(1))
    assert engine.snapshot().hit_rate == 39 / 80


def test_what_a_reply_cost(engine):
    [sample] = ask(engine, PROMPT[:40], greedy(5)).samples
    stats = sample.stats
    assert (stats.num_prompt_tokens, stats.num_cached_tokens, stats.num_generated_tokens) == (40, 0, 5)
    assert stats.num_preemptions == 0
    assert 0 <= stats.queue_ms <= stats.ttft_ms <= stats.total_ms
    assert stats.decode_tokens_per_s == pytest.approx(4e3 / (stats.total_ms - stats.ttft_ms), rel=0.01)
    [sample] = ask(engine, PROMPT[:40], greedy(1)).samples
    assert (sample.stats.num_cached_tokens, sample.stats.decode_tokens_per_s) == (39, 0)


def test_logprobs_are_the_models_own(engine, tiny_model):
    [sample] = ask(engine, PROMPT[:20], greedy(4, logprobs=3)).samples
    model = transformers_model(tiny_model())
    with torch.inference_mode():
        logits = model(torch.tensor([[*PROMPT[:20], *sample.token_ids]])).logits[0]
    for position, logprobs in enumerate(sample.logprobs):
        expected = torch.log_softmax(logits[19 + position], dim=-1)
        values, ids = expected.topk(3)
        assert logprobs.token_id == sample.token_ids[position] == ids[0]
        assert logprobs.logprob == pytest.approx(float(values[0]), abs=1e-4)
        assert [token_id for token_id, _ in logprobs.top] == ids.tolist()
        assert [value for _, value in logprobs.top] == pytest.approx(values.tolist(), abs=1e-4)
    assert len(sample.logprobs) == 4


def test_no_logprobs_unless_asked_for(engine):
    assert ask(engine, PROMPT[:5], greedy(3)).samples[0].logprobs == ()


def test_events_can_be_read_on_from_where_one_stopped(engine):
    ask(engine, PROMPT[:20], greedy(2))
    first = engine.events()
    assert [event.number for event in first] == list(range(len(first)))
    assert engine.events(since=len(first)) == []
    ask(engine, PROMPT[:20], greedy(2))
    assert engine.events(since=len(first))[0].number == len(first)
    assert engine.snapshot().num_events == len(engine.events())


def test_salts_share_nothing_and_get_the_same_replies(engine):
    first = ask(engine, PROMPT[:40], greedy(5), salt="ann")
    second = ask(engine, PROMPT[:40], greedy(5), salt="bob")
    third = ask(engine, PROMPT[:40], greedy(5), salt="ann")
    assert [output.num_cached_tokens for output in (first, second, third)] == [0, 0, 39]
    assert first.samples[0].token_ids == second.samples[0].token_ids == third.samples[0].token_ids
    assert engine.probe(PROMPT[:40]).num_cached_tokens == 0
    assert engine.probe(PROMPT[:40], salt="bob").num_cached_tokens == 39


def test_without_prefix_caching_nothing_is_reused(make_engine):
    engine = make_engine(prefix_caching=False)
    for _ in range(2):
        assert ask(engine, PROMPT[:40], greedy(3)).num_cached_tokens == 0
    snapshot = engine.snapshot()
    assert (snapshot.num_free, snapshot.num_cached, snapshot.hits, snapshot.misses) == (63, 0, 0, 80)


# Faults


def test_a_step_that_raises_ends_its_requests_with_the_reason(engine, caplog):
    caplog.set_level(logging.CRITICAL)
    runner = FaultyRunner(engine)
    first = engine.submit(PROMPT[:20], greedy(5))
    second = engine.submit(PROMPT[50:70], greedy(5, n=2))
    engine.step()
    runner.faults.append(RuntimeError("the device is gone"))
    deltas = engine.step()
    assert sorted((delta.request_id, delta.sample, delta.finish_reason) for delta in deltas) == [
        (first, 0, "error"),
        (second, 0, "error"),
        (second, 1, "error"),
    ]
    assert all("RuntimeError: the device is gone" in delta.error for delta in deltas)
    assert not engine.has_unfinished
    assert engine.snapshot().num_referenced == 0


def test_after_a_failed_step_the_engine_lives_on_and_replies_are_right(engine, make_engine, caplog):
    caplog.set_level(logging.CRITICAL)
    runner = FaultyRunner(engine)
    expected = reply_ids(make_engine(), PROMPT[:40], greedy(5))
    runner.faults.append(RuntimeError("out of luck"))
    with pytest.raises(StepFailed, match="out of luck"):
        ask(engine, PROMPT[:40], greedy(5))
    assert reply_ids(engine, PROMPT[:40], greedy(5)) == expected
    assert reply_ids(engine, PROMPT[:40], greedy(5)) == expected


def test_a_request_that_was_not_in_the_failed_step_goes_on(make_engine, caplog):
    caplog.set_level(logging.CRITICAL)
    engine = make_engine(max_num_seqs=1)
    runner = FaultyRunner(engine)
    first, second = engine.submit(PROMPT[:20], greedy(3)), engine.submit(PROMPT[50:70], greedy(3))
    runner.faults.append(RuntimeError("once"))
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
