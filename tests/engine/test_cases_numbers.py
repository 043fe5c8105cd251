"""Faults that users of other systems met, each as a story: full pools, padding, tiny temperatures, NaN."""

import math

import pytest
import torch

from case_prompts import KERNELS, PROMPT
from paged_chat.engine import PagedChatError
from paged_chat.engine.errors import PromptTooLong
from replies import ask, drawn, greedy, ids_of, reply_ids, transformers_model, transformers_reply
from slot_runner import sequence_of

# E12: a prompt that never fits


def test_e12_a_prompt_larger_than_the_pool_is_refused_at_once_and_the_next_is_served(make_engine):
    engine = make_engine(num_blocks=50)  # the null block and 49
    with pytest.raises(PromptTooLong) as refusal:
        engine.submit(PROMPT[: 63 * 16], greedy(5))
    assert "63 blocks" in str(refusal.value)
    assert "49 blocks" in str(refusal.value)
    assert isinstance(refusal.value, PagedChatError)
    assert not engine.has_unfinished
    assert len(reply_ids(engine, PROMPT[:20], greedy(5))) == 5


def test_e12_a_prompt_that_fills_the_pool_to_its_last_slot_is_served(make_engine):
    engine = make_engine(num_blocks=50)
    [sample] = ask(engine, PROMPT[: 49 * 16], greedy(5)).samples
    assert sample.token_ids == reply_ids(make_engine(), PROMPT[: 49 * 16], greedy(1))
    with pytest.raises(PromptTooLong):
        engine.submit(PROMPT[: 49 * 16 + 1], greedy(5))


# E13: padding


@pytest.mark.parametrize("kernels", KERNELS)
def test_e13_padded_batches_leave_the_last_block_of_the_pool_alone(make_engine, kernels):
    engine = make_engine(num_blocks=16, kernels=kernels)
    ask(engine, PROMPT[: 12 * 16], greedy(1))
    request_id = engine.submit(PROMPT[500:548], greedy(25))
    deltas = engine.step()
    assert [block.block_id for block in sequence_of(engine._open_core(), request_id).block_table] == [13, 14, 15]
    last_block = engine._open_core()._runner._kv_cache.pool[:, 15]  # of each layer
    before = last_block.clone()
    # Block tables of one to four blocks beside each other: the shorter ones are padded.
    for length in (1, 17, 40):
        engine.submit(PROMPT[200 : 200 + length], greedy(4))
    while engine.has_unfinished:
        deltas += engine.step()
        assert torch.equal(last_block.view(torch.int32), before.view(torch.int32))
    assert ids_of(deltas, request_id) == reply_ids(make_engine(), PROMPT[500:548], greedy(25))


# E14: tiny temperatures


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_e14_tiny_temperatures_agree_with_the_likeliest_and_never_give_nan(make_engine, dtype):
    engine = make_engine(dtype=dtype, kernels="reference" if dtype == "float16" else "cpu")
    replies = set()
    for temperature in (0.0, 1e-6, 1e-4):
        [sample] = ask(engine, PROMPT[:20], drawn(10, temperature=temperature, seed=4, logprobs=1)).samples
        replies.add(sample.token_ids)
        assert all(math.isfinite(logprobs.logprob) for logprobs in sample.logprobs)
        assert [logprobs.top[0][0] for logprobs in sample.logprobs] == list(sample.token_ids)
    assert len(replies) == 1


# E21: NaN in every unused slot


@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize("family", ["llama", "mistral"])
@pytest.mark.parametrize("length", [1, 15, 16, 17, 31, 32, 33])
def test_e21_unused_slots_full_of_nan_change_nothing(make_engine, tiny_model, kernels, family, length):
    engine = make_engine(family, kernels=kernels)
    engine._open_core()._runner._kv_cache.pool.fill_(math.nan)
    [sample] = ask(engine, PROMPT[:length], greedy(3, logprobs=0)).samples
    assert sample.token_ids == transformers_reply(transformers_model(tiny_model(family)), PROMPT[:length], 3)
    assert all(math.isfinite(logprobs.logprob) for logprobs in sample.logprobs)


@pytest.mark.parametrize("kernels", KERNELS)
def test_e21_together_in_one_batch_too(make_engine, tiny_model, kernels):
    engine = make_engine(kernels=kernels)
    engine._open_core()._runner._kv_cache.pool.fill_(math.nan)
    prompts = [PROMPT[i * 40 : i * 40 + length] for i, length in enumerate((1, 15, 16, 17, 31, 32, 33))]
    outputs = engine.generate(prompts, greedy(3))
    model = transformers_model(tiny_model())
    assert [output.samples[0].token_ids for output in outputs] == [transformers_reply(model, p, 3) for p in prompts]
