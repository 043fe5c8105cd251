"""The engine as a program calls it, on a tiny model with random weights. Blocks hold 16 tokens."""

import pytest

from paged_chat.engine import SamplingParams
from paged_chat.engine.errors import InvalidParameter
from replies import all_steps, ask, greedy, ids_of, reply_ids, transformers_model, transformers_reply

PROMPT = [1, *((7 * i) % 300 + 3 for i in range(199))]

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
