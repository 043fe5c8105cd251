"""Beam search finds what transformers' own finds: the same replies in the same order, with the same scores."""

from typing import Any

import pytest

from default_model_oracle import transformers_llama
from paged_chat.engine import SamplingParams
from replies import ask, transformers_model

FAMILIES = ("llama", "mistral", "qwen2-window", "qwen3", "smollm3")
TOLERANCE = 1e-4  # of scores, whose float32 sums are of another order


def prompt(length: int, seed: int = 0) -> list[int]:
    return [3 + (seed * 97 + 31 * i + i * i) % 317 for i in range(length)]


def transformers_beams(
    model: Any, token_ids: list[int], params: SamplingParams, end_token_ids: list[int]
) -> list[tuple[tuple[int, ...], float]]:
    """The replies that transformers finds, without padding, and their scores."""
    import torch

    asked = torch.tensor([token_ids])
    with torch.inference_mode():
        found = model.generate(
            asked,
            attention_mask=torch.ones_like(asked),
            max_new_tokens=params.max_tokens,
            num_beams=params.beam_width,
            num_return_sequences=params.n,
            length_penalty=params.length_penalty,
            early_stopping=params.early_stopping,
            repetition_penalty=params.repetition_penalty,
            do_sample=False,
            eos_token_id=end_token_ids or None,
            pad_token_id=0,
            output_scores=True,
            return_dict_in_generate=True,
        )
    replies = []
    for row, score in zip(found.sequences[:, len(token_ids) :].tolist(), found.sequences_scores.tolist(), strict=True):
        ends = [place for place, token_id in enumerate(row) if token_id in end_token_ids]
        replies.append((tuple(row[: ends[0] + 1] if ends else row), score))
    return replies


def assert_same(engine: Any, model: Any, token_ids: list[int], end_token_ids: list[int], **fields: Any) -> None:
    params = SamplingParams(stop_token_ids=end_token_ids, ignore_eos=True, **fields)
    expected = transformers_beams(model, token_ids, params, end_token_ids)
    samples = ask(engine, token_ids, params).samples
    assert [sample.token_ids for sample in samples] == [ids for ids, _ in expected]
    assert [sample.score for sample in samples] == pytest.approx([score for _, score in expected], abs=TOLERANCE)
    ends = {"stop" if ids[-1] in end_token_ids else "length" for ids, _ in expected}
    assert {sample.finish_reason for sample in samples} == ends


def likely_ends(engine: Any, token_ids: list[int], count: int) -> list[int]:
    """Tokens that the best beams hold: taken as end tokens, replies end early and at several lengths."""
    [best, *_] = ask(engine, token_ids, beam_width=4, n=4, max_tokens=8, ignore_eos=True).samples
    return list(dict.fromkeys(best.token_ids[1:]))[:count]


@pytest.mark.parametrize("family", FAMILIES)
def test_replies_without_an_end_token(family, make_engine, tiny_model):
    engine, model = make_engine(family), transformers_model(tiny_model(family))
    for width, length, max_tokens in ((2, 1, 9), (3, 17, 20), (4, 33, 5), (5, 47, 1)):
        assert_same(engine, model, prompt(length), [], beam_width=width, n=width, max_tokens=max_tokens)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("early_stopping", [False, True, "never"])
def test_replies_that_end_inside(family, early_stopping, make_engine, tiny_model):
    engine, model = make_engine(family), transformers_model(tiny_model(family))
    for seed, (width, length, penalty) in enumerate(((2, 15, 1.0), (3, 31, 0.0), (4, 19, -0.7), (5, 41, 2.0))):
        ends = likely_ends(engine, prompt(length, seed), 1 + seed % 3)
        assert_same(
            engine,
            model,
            prompt(length, seed),
            ends,
            beam_width=width,
            n=1 + seed % width,
            max_tokens=14,
            length_penalty=penalty,
            early_stopping=early_stopping,
        )


def test_a_repetition_penalty_applies_to_log_probabilities(make_engine, tiny_model):
    engine, model = make_engine("llama"), transformers_model(tiny_model("llama"))
    assert_same(engine, model, prompt(21), [], beam_width=3, n=3, max_tokens=18, repetition_penalty=1.7)


# "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n"
QUESTION = [1, 4093, 198, 1780, 314, 260, 3575, 282, 4649, 47, 2, 198, 1, 520, 9531, 198]


def test_the_default_model(make_engine, default_model, default_model_path):
    """Some replies end and some don't, and all blocks are free when the search is over."""
    engine, model = make_engine(model=default_model), transformers_llama(default_model_path)
    assert_same(engine, model, QUESTION, [2], beam_width=4, n=4, max_tokens=9)
    pool = engine.snapshot()
    assert (pool.num_referenced, pool.num_shared, pool.num_free + pool.num_cached) == (0, 0, 63)
