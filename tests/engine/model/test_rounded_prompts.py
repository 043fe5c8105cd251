"""Long prompts whose rows are rounded: near the exact step, the same whatever is beside; and which loads choose it."""

import itertools

import pytest
import torch

import tiny_gguf
import tiny_models
from paged_chat.engine import EngineConfig
from paged_chat.engine.home import prepared_folder
from paged_chat.engine.model import loader
from paged_chat.engine.model.loader import load_model
from paged_chat.engine.model.packed_arrays import MAX_EXACT_ROWS
from paged_chat.engine.model.packed_decoder import PackedDecoder
from paged_chat.kernels.cpu.row_spans import CAN_BE_COARSE, EXACT_TAIL
from paged_decoder import PagedDecoder

pytestmark = pytest.mark.skipif(not CAN_BE_COARSE, reason="this processor multiplies activations as 16 bits")

SHAPE = {"hidden_size": 96, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 64}
WIDE = {"hidden_size": 192, "num_attention_heads": 3, "num_key_value_heads": 1}  # for heads of hidden_size / heads
# With biases; norms of queries and keys; windows; layers without rotation.
SHAPES = {"llama-bias": SHAPE, "qwen3": SHAPE, "qwen2-window": WIDE, "smollm3": WIDE}

each_family = pytest.mark.parametrize("family", SHAPES)


def random_ids(count, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(3, tiny_models.VOCAB_SIZE, (count,), generator=generator).tolist()


PROMPT, OTHER = random_ids(1200, seed=1), random_ids(170, seed=2)


@pytest.fixture
def model(tiny_model, family):
    return tiny_model(family, **SHAPES[family])


def decoder(model, *, rounds_prompts):
    loaded = load_model(EngineConfig(model=str(model), weights="int4", dtype="bfloat16"))
    exact = loaded.decoder
    chosen = PackedDecoder(exact.config, exact._weights, torch.bfloat16, rounds_prompts=rounds_prompts)
    return PagedDecoder(chosen, dtype=torch.bfloat16)


def exact(model):
    return decoder(model, rounds_prompts=False)


def rounded(model):
    return decoder(model, rounds_prompts=True)


def mean_error(logits, expected):
    """As a share of the logits' spread."""
    assert not logits.isnan().any()
    return ((logits - expected).abs().mean() / expected.std()).item()


@each_family
def test_the_logits_of_a_long_prompt_are_about_the_exact_ones(model):
    """Over blocks of NaN, in steps that end anywhere in a block. Random weights magnify what is rounded; a wrong place
    or mask would be off by about 1."""
    edges = [0, 49, 146, 211, 468, 1200]
    some, other = rounded(model), exact(model)
    for start, stop in itertools.pairwise(edges):
        [logits] = some.step(("a", PROMPT[start:stop]))
        [expected] = other.step(("a", PROMPT[start:stop]))
        assert mean_error(logits, expected) < 0.2
        # The last rows themselves are exact; what they see of the others isn't.
        assert 0 < mean_error(logits[-EXACT_TAIL:], expected[-EXACT_TAIL:]) < 0.2


@each_family
def test_a_short_step_is_exact_to_the_bit(model):
    prompts = [("a", PROMPT[:30]), ("b", OTHER[: MAX_EXACT_ROWS - 30])]
    for logits, expected in zip(rounded(model).step(*prompts), exact(model).step(*prompts), strict=True):
        assert logits.equal(expected)


@each_family
def test_what_is_beside_a_long_prompt_changes_no_bit_of_it(model):
    together, alone, other = rounded(model), rounded(model), exact(model)
    together.step(("b", OTHER[:20]))
    other.step(("b", OTHER[:20]))
    [logits, decoded, others] = together.step(("a", PROMPT[:300]), ("b", OTHER[20:21]), ("c", OTHER[:90]))
    assert logits.equal(alone.step(("a", PROMPT[:300]))[0])
    assert others.equal(alone.step(("c", OTHER[:90]))[0])
    assert decoded.equal(other.step(("b", OTHER[20:21]))[0])  # and what decodes is exact


@each_family
def test_the_last_layer_leaves_out_only_what_nobody_looks_at(model):
    [[last], every_row] = (rounded(model).step(("a", PROMPT[:300]), all_rows=all_rows)[0] for all_rows in (False, True))
    assert last.equal(every_row[-1])


@pytest.fixture
def four_bit_file(tmp_path, monkeypatch):
    monkeypatch.setattr(loader, "fits_tiled", lambda *_: False)  # as on a processor without matrix tiles
    return tiny_gguf.build("llama", tmp_path / "tiny.gguf", "Q4_1", **SHAPE)


def takes_rounded(model_file, **fields):
    loaded = load_model(EngineConfig(model=str(model_file), **fields))
    [logits] = PagedDecoder(loaded.decoder, dtype=loaded.dtype).step(("a", PROMPT[:200]))
    return logits.equal(rounded(model_file).step(("a", PROMPT[:200]))[0])


def test_four_bits_without_tiles_round_long_prompts_and_keep_no_dense_weights(four_bit_file):
    assert takes_rounded(four_bit_file)
    assert [path.name for path in prepared_folder(four_bit_file).iterdir()] == ["packed-int4.safetensors"]


@pytest.mark.parametrize("fields", [{"weights": "int4"}, {"weights": "int8"}, {"dtype": "float32"}])
def test_weights_or_a_dtype_that_was_asked_for_round_no_prompt(four_bit_file, fields):
    assert not takes_rounded(four_bit_file, **fields)
