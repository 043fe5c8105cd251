"""A tiny model's greedy replies on the device equal those of the float32 reference on the processor."""

import pytest

from paged_chat.engine import Engine, EngineConfig, SamplingParams

PROMPTS = [[5, 6, 7], list(range(3, 120)), [9] * 33, [300, 11], list(range(3, 120))]
PARAMS = SamplingParams(temperature=0.0, max_tokens=40, ignore_eos=True)


def replies(model, **options):
    config = EngineConfig(model=str(model), dtype="float32", weights="dense", check_integrity=True, **options)
    with Engine(config) as engine:
        outputs = engine.generate(PROMPTS, PARAMS)
        again = engine.generate(PROMPTS, PARAMS)  # now from the cache
        engine.check_integrity()
    assert [output.num_cached_tokens for output in again] == [len(prompt) - 1 for prompt in PROMPTS]
    first = [output.samples[0].token_ids for output in outputs]
    assert first == [output.samples[0].token_ids for output in again]
    return first


@pytest.mark.parametrize("family", ["llama", "mistral", "qwen3", "smollm3", "llama-group3", "yarn"])
def test_greedy_replies_equal_those_of_the_reference(tiny_model, family):
    expected = replies(tiny_model(family), device="cpu", kernels="reference", num_blocks=256)
    assert replies(tiny_model(family), device="cuda", num_blocks=256) == expected


def test_a_small_pool_that_preempts_gives_the_same_replies(tiny_model):
    expected = replies(tiny_model("llama"), device="cpu", kernels="reference", num_blocks=256)
    config = EngineConfig(
        model=str(tiny_model("llama")),
        device="cuda",
        dtype="float32",
        num_blocks=24,
        watermark=0.0,
        check_integrity=True,
    )
    with Engine(config) as engine:
        assert [output.samples[0].token_ids for output in engine.generate(PROMPTS, PARAMS)] == expected


def test_doctors_kernel_check_passes():
    from paged_chat.engine.kernel_check import check_kernels

    for dtype in ("float32", "float16", "bfloat16"):
        checks = list(check_kernels(EngineConfig(device="cuda", dtype=dtype)))
        assert [check for check in checks if not check.passed] == []
        [measured] = [check for check in checks if check.gb_per_s is not None]
        assert measured.kernel == "attention_decode"
