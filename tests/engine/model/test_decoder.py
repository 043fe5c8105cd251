"""The oracle: transformers' own logits, for every family, however the prompt is cut and whatever runs beside it."""

import pytest
import torch

import tiny_models
from paged_chat.engine.config import EngineConfig
from paged_chat.engine.model.loader import load_model
from paged_decoder import PagedDecoder

TOLERANCE = 1e-4
PROMPT = torch.randint(3, tiny_models.VOCAB_SIZE, (100,), generator=torch.Generator().manual_seed(1)).tolist()
OTHER = torch.randint(3, tiny_models.VOCAB_SIZE, (61,), generator=torch.Generator().manual_seed(2)).tolist()


def expected_logits(family, token_ids, **overrides):
    with torch.inference_mode():
        return tiny_models.causal_lm(family, **overrides)(torch.tensor([token_ids])).logits[0]


def paged(folder, kernels="cpu", **options):
    return PagedDecoder(
        load_model(EngineConfig(model=str(folder), dtype="float32", kernels=kernels)).decoder, **options
    )


def assert_close(logits, expected):
    torch.testing.assert_close(logits, expected, atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("kernels", ["reference", "cpu"])
@pytest.mark.parametrize("family", tiny_models.FAMILIES)
def test_a_whole_prompt_has_transformers_logits(tiny_model, family, kernels):
    [logits] = paged(tiny_model(family), kernels).step(("a", PROMPT))
    assert_close(logits, expected_logits(family, PROMPT))


@pytest.mark.parametrize("family", tiny_models.FAMILIES)
def test_a_prompt_in_chunks_has_the_same_logits(tiny_model, family):
    decoder = paged(tiny_model(family))
    parts = [decoder.step(("a", PROMPT[start:stop]))[0] for start, stop in [(0, 7), (7, 39), (39, 48), (48, 100)]]
    assert_close(torch.cat(parts), expected_logits(family, PROMPT))


@pytest.mark.parametrize("family", tiny_models.FAMILIES)
def test_token_by_token_over_the_cache_has_the_same_logits(tiny_model, family):
    decoder = paged(tiny_model(family))
    parts = [decoder.step(("a", [token_id]))[0] for token_id in PROMPT]
    assert_close(torch.cat(parts), expected_logits(family, PROMPT))


@pytest.mark.parametrize("family", tiny_models.FAMILIES)
def test_decodes_and_prefills_share_a_step(tiny_model, family):
    decoder = paged(tiny_model(family))
    decoder.step(("a", PROMPT[:40]), ("b", OTHER[:17]))
    beside = decoder.step(("c", PROMPT), ("a", [PROMPT[40]]), ("b", OTHER[17:60]))
    last = decoder.step(("b", [OTHER[60]]), ("a", PROMPT[41:]), all_rows=False)
    expected, other = expected_logits(family, PROMPT), expected_logits(family, OTHER)
    assert_close(beside[0], expected)
    assert_close(beside[1], expected[40:41])
    assert_close(beside[2], other[17:60])
    assert_close(last[0], other[60:])
    assert_close(last[1], expected[-1:])


@pytest.mark.parametrize("block_size", [1, 8, 32])
def test_the_block_size_changes_nothing(tiny_model, block_size):
    decoder = paged(tiny_model("mistral"), block_size=block_size)
    parts = [decoder.step(("a", PROMPT[:50]))[0], decoder.step(("a", [PROMPT[50]]))[0]]
    assert_close(torch.cat(parts), expected_logits("mistral", PROMPT[:51]))


def test_positions_far_behind_the_trained_context_turn_as_in_transformers(tiny_model):
    """Yarn and Llama 3 stretch 256 positions to 2,048; only far ones tell the frequencies apart."""
    far = torch.randint(3, tiny_models.VOCAB_SIZE, (1500,), generator=torch.Generator().manual_seed(3)).tolist()
    for family in ("yarn", "llama3", "linear"):
        [logits] = paged(tiny_model(family)).step(("a", far))
        assert_close(logits, expected_logits(family, far))


def test_rotary_tables_grow_with_the_longest_context(tiny_model):
    decoder = paged(tiny_model("llama"))
    inner = decoder.decoder
    inner.cos, inner.sin = inner.cos[:16], inner.sin[:16]
    parts = [decoder.step(("a", PROMPT[:20]))[0]]
    assert inner.cos.shape == (32, 8)
    parts.append(decoder.step(("a", PROMPT[20:]))[0])
    assert inner.cos.shape == (100, 8)
    assert_close(torch.cat(parts), expected_logits("llama", PROMPT))


def test_a_step_without_wanted_rows_writes_its_keys_and_gives_no_logits(tiny_model):
    decoder = paged(tiny_model("llama"))
    inner = decoder.decoder
    original, seen = inner.forward, []

    def without_rows(inputs, *caches):
        import dataclasses

        seen.append(original(dataclasses.replace(inputs, logits_rows=inputs.logits_rows[:0]), *caches))
        return torch.zeros(len(inputs.logits_rows), tiny_models.VOCAB_SIZE)

    inner.forward = without_rows
    decoder.step(("a", PROMPT[:30]))
    inner.forward = original
    assert seen[0].shape == (0, tiny_models.VOCAB_SIZE)
    assert_close(decoder.step(("a", PROMPT[30:]))[0], expected_logits("llama", PROMPT)[30:])


def test_bfloat16_follows_float32(tiny_model):
    folder = tiny_model("qwen3")
    decoder = PagedDecoder(load_model(EngineConfig(model=str(folder), dtype="bfloat16", kernels="cpu")).decoder)
    [logits] = decoder.step(("a", PROMPT))
    expected = expected_logits("qwen3", PROMPT)
    assert logits.dtype == torch.float32
    assert (logits - expected).abs().mean() < 0.05 * expected.std()
