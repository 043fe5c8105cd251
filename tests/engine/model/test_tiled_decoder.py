"""The tiled step: near the packed one and dense float32, equal to the bit whatever is beside; which loads choose it.

Tiny models have the default model's heads and bits, for which all is compiled anyway.
"""

import itertools
import json
from pathlib import Path

import pytest
import torch

import tiny_gguf
import tiny_models
from packed_twin import dense_twin
from paged_chat.engine import ChatMessage, Engine, EngineConfig, SamplingParams
from paged_chat.engine.home import prepared_folder
from paged_chat.engine.model import tiled_decoder
from paged_chat.engine.model.decoder import Decoder
from paged_chat.engine.model.loader import load_model
from paged_chat.engine.model.packed_arrays import MAX_EXACT_ROWS
from paged_chat.engine.model.packed_decoder import PackedDecoder
from paged_chat.engine.model.tiled_decoder import MIN_TILED_ROWS, TiledDecoder
from paged_chat.kernels.cpu import amx
from paged_chat.kernels.cpu.amx_layer import count_panels
from paged_chat.kernels.cpu.paged_attention import ROWS_BY_PIECE
from paged_decoder import PagedDecoder
from tile_products import needs_tiles

pytestmark = needs_tiles

SHAPE = {"hidden_size": 96, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 64}
WIDE = {"hidden_size": 192, "num_attention_heads": 3, "num_key_value_heads": 1}  # for heads of hidden_size / heads
# By family, with what it has: biases everywhere, or of queries, keys and values; norms of queries and keys; windows;
# layers without rotation.
SHAPES = {
    "llama": SHAPE,
    "llama-bias": SHAPE,
    "qwen2": WIDE,
    "qwen3": SHAPE,
    "mistral": SHAPE,
    "qwen2-window": WIDE,
    "smollm3": WIDE,
}
WORKLOADS = Path(__file__).parent.parent.parent / "workloads"

each_family = pytest.mark.parametrize("family", SHAPES)
both_modes = pytest.mark.parametrize("mode", ["fast", "exact"])


def random_ids(count, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(3, tiny_models.VOCAB_SIZE, (count,), generator=generator).tolist()


PROMPT, OTHER = random_ids(330, seed=1), random_ids(170, seed=2)


@pytest.fixture
def model(tiny_model, family):
    return tiny_model(family, **SHAPES[family])


def packed(model, bits=4):
    """Packed steps alone, over a cache in bfloat16."""
    loaded = load_model(EngineConfig(model=str(model), weights=f"int{bits}", dtype="bfloat16"))
    return PagedDecoder(loaded.decoder, dtype=loaded.dtype)


def tiled(model, bits=4):
    """Tiled steps alone, of however few rows."""
    decoder = packed(model, bits).decoder
    return PagedDecoder(TiledDecoder(decoder.config, decoder._weights, torch.bfloat16), dtype=torch.bfloat16)


def in_chunks(decoder, name, token_ids, edges):
    """The logits of all rows, computed from edge to edge."""
    return torch.cat([decoder.step((name, token_ids[start:stop]))[0] for start, stop in itertools.pairwise(edges)])


def mean_error(logits, expected):
    """As a share of the logits' spread."""
    assert not logits.isnan().any()
    return ((logits - expected).abs().mean() / expected.std()).item()


# Logits


@each_family
def test_fast_logits_are_about_those_of_the_same_weights_in_float32(model):
    [logits], [expected] = tiled(model).step(("a", PROMPT)), dense_twin(model, bits=4).step(("a", PROMPT))
    assert logits.shape == (330, tiny_models.VOCAB_SIZE)
    assert mean_error(logits, expected) < 0.1


@each_family
def test_exact_logits_are_those_of_the_packed_step(model):
    logits = in_chunks(tiled(model), "a", PROMPT, range(0, 331, 30))
    assert mean_error(logits, packed(model).step(("a", PROMPT))[0]) < 0.01


def test_other_heads_and_eight_bits(tiny_model):
    """Heads of 32 features in groups of two."""
    shape = {"hidden_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32}
    model = tiny_model("llama", **shape)
    [logits], [expected] = (decoder.step(("a", PROMPT[:48])) for decoder in (tiled(model, 8), dense_twin(model, 8)))
    assert mean_error(logits, expected) < 0.02


# To the bit


FAST_EDGES = [0, 330], [0, 49, 101, 178, 330]
EXACT_EDGES = [*range(0, 330, 48), 330], [0, 2, 17, 48, 95, 97, 130, *range(170, 331, 40)]


@each_family
@pytest.mark.parametrize(("some_edges", "other_edges"), [FAST_EDGES, EXACT_EDGES], ids=["fast", "exact"])
def test_a_prompt_in_other_chunks_is_equal_to_the_bit(model, some_edges, other_edges):
    some, other = (in_chunks(tiled(model), "a", PROMPT, edges) for edges in (some_edges, other_edges))
    assert some.equal(other)


@each_family
@pytest.mark.parametrize("num_panels", [0, 1, 3])
def test_rows_in_panels_or_all_together_are_equal_to_the_bit(model, monkeypatch, num_panels):
    """330 rows are two panels here, or as many as there are threads; the last one's end is padded."""
    [expected] = tiled(model).step(("a", PROMPT))
    monkeypatch.setattr(tiled_decoder, "count_panels", lambda *_: num_panels)
    decoder = tiled(model)
    [found], [after] = decoder.step(("a", PROMPT)), decoder.step(("a", PROMPT[:60]))
    assert found.equal(expected)
    assert after.isfinite().all()


def test_rows_are_cut_into_panels_that_fit_a_cores_cache_as_many_for_each_thread():
    assert [count_panels(rows, 576, 2) for rows in (1, 255, 256, 1073, 1136, 1137, 2048)] == [0, 0, 2, 2, 2, 4, 4]
    assert count_panels(1073, 576, 16) == 0  # too few rows for so many
    assert count_panels(1073, 2048, 2) == 8
    assert count_panels(1073, 4096, 2) == 0  # too few rows fit


@each_family
def test_a_sequence_among_others_is_equal_to_the_bit(model):
    [expected], [other] = tiled(model).step(("a", PROMPT)), tiled(model).step(("b", OTHER))
    decoder = tiled(model)
    first = decoder.step(("a", PROMPT[:40]), ("b", OTHER[:17]))
    beside = decoder.step(("c", PROMPT), ("a", PROMPT[40:47]), ("b", OTHER[17:60]))
    assert torch.cat([first[0], beside[1]]).equal(expected[:47])
    assert torch.cat([first[1], beside[2]]).equal(other[:60])
    assert beside[0].equal(expected)
    # Of rows whose logits aren't wanted the last layer computes no more than their keys and values.
    last = decoder.step(("b", OTHER[60:]), ("a", PROMPT[47:]), all_rows=False)
    assert last[0].equal(other[-1:])
    assert last[1].equal(expected[-1:])


@pytest.mark.parametrize("family", ["llama"])
def test_few_rows_of_several_sequences_are_equal_to_the_bit(model):
    alone = [in_chunks(tiled(model), "a", token_ids, [0, 48]) for token_ids in (PROMPT, OTHER)]
    decoder = tiled(model)
    first = decoder.step(("a", PROMPT[:31]), ("b", OTHER[:17]))
    rest = decoder.step(("b", OTHER[17:48]), ("a", PROMPT[31:48]))
    assert torch.cat([first[0], rest[1]]).equal(alone[0])
    assert torch.cat([first[1], rest[0]]).equal(alone[1])


@each_family
@pytest.mark.parametrize(("mode", "beside"), [("fast", (60, 130)), ("exact", (16, 33))])
def test_a_decoding_row_is_equal_to_the_bit_whatever_is_beside(model, mode, beside):
    rows = []
    for num_others in beside:
        decoder = tiled(model)
        decoder.step(("a", PROMPT[:299]), ("b", OTHER[:50]))
        several = decoder.step(("other", OTHER[:num_others]), ("a", [PROMPT[299]]), ("b", [OTHER[50]]))
        rows.append(several[1:])
    assert rows[0][0].equal(rows[1][0])
    assert rows[0][1].equal(rows[1][1])
    [whole] = tiled(model).step(("a", PROMPT[:300]))
    assert mean_error(rows[0][0], whole[299:]) < 0.1


@both_modes
@pytest.mark.parametrize("family", ["qwen2-window"])
def test_decoding_rows_are_equal_to_the_bit_in_a_large_batch(model, mode):
    """Attention shares few such rows by pieces of their contexts, and many by row."""
    names = [f"chat {number}" for number in range(ROWS_BY_PIECE + 4)]
    filler = 60 if mode == "fast" else 16
    decoders = tiled(model), tiled(model)
    for decoder in decoders:
        decoder.step(*((name, OTHER[i : 2 * i + 30]) for i, name in enumerate(names)))
    many = decoders[0].step(*((name, [7 + i]) for i, name in enumerate(names)), ("filler", PROMPT[:filler]))
    for i in (0, 5, len(names) - 1):
        alone = decoders[1].step((names[i], [7 + i]), (f"filler {i}", PROMPT[:filler]))
        assert alone[0].equal(many[i])


# In an engine


@pytest.fixture
def four_bit_file(tmp_path):
    return tiny_gguf.build("llama", tmp_path / "tiny.gguf", "Q4_1", **SHAPE)


def test_steps_that_end_in_the_middle_of_a_prompt_change_nothing(make_engine, four_bit_file):
    """No logits are wanted then: the last layer ends with its keys and values."""
    replies = []
    for budget in (64, 320):
        engine = make_engine(model=str(four_bit_file), dtype="auto", weights="auto", max_num_batched_tokens=budget)
        params = SamplingParams(max_tokens=8, ignore_eos=True, temperature=0.0, logprobs=3)
        [output] = engine.generate([PROMPT[:320]], params)
        replies.append((output.samples[0].token_ids, output.samples[0].logprobs))
    assert replies[0] == replies[1]


def test_four_bits_and_tiles_are_what_a_load_chooses(four_bit_file):
    loaded = load_model(EngineConfig(model=str(four_bit_file)))
    assert (loaded.weights, loaded.dtype) == ("int4", torch.bfloat16)
    assert isinstance(loaded.decoder._many_rows, TiledDecoder)
    assert loaded.decoder.path_rows == (1, MIN_TILED_ROWS, MAX_EXACT_ROWS + 1)
    # No second copy of the weights is prepared.
    assert [path.name for path in prepared_folder(four_bit_file).iterdir()] == ["packed-int4.safetensors"]


def test_few_rows_are_packed_and_more_are_tiled(four_bit_file):
    def chosen():
        decoder = load_model(EngineConfig(model=str(four_bit_file))).decoder
        return PagedDecoder(decoder, dtype=torch.bfloat16)

    for num_rows, path in ((MIN_TILED_ROWS - 1, packed), (MIN_TILED_ROWS, tiled), (MAX_EXACT_ROWS + 1, tiled)):
        [logits], [expected] = (decoder.step(("a", PROMPT[:num_rows])) for decoder in (chosen(), path(four_bit_file)))
        assert logits.equal(expected)


@pytest.mark.parametrize("fields", [{"weights": "int4"}, {"weights": "int8"}, {"weights": "int8", "dtype": "bfloat16"}])
def test_weights_that_were_asked_for_take_packed_steps_only(four_bit_file, fields):
    """int8 promises each token's logits to the bit, whatever the number of rows."""
    decoder = load_model(EngineConfig(model=str(four_bit_file), **fields)).decoder
    assert decoder.path_rows == (1,)


def test_float32_other_heads_and_other_processors_take_no_tiles(four_bit_file, tiny_model, monkeypatch):
    assert isinstance(load_model(EngineConfig(model=str(four_bit_file), dtype="float32")).decoder, Decoder)
    narrow = load_model(EngineConfig(model=str(tiny_model("llama")))).decoder  # heads of 16
    assert isinstance(narrow, PackedDecoder)
    assert isinstance(narrow._many_rows, Decoder)
    monkeypatch.setattr(amx, "has_tiles", lambda: False)
    assert isinstance(load_model(EngineConfig(model=str(four_bit_file))).decoder._many_rows, Decoder)


# The default model


def log_probs(loaded, token_ids, step_rows):
    decoder = PagedDecoder(loaded.decoder, num_blocks=32, dtype=loaded.dtype)
    with torch.inference_mode():
        logits = in_chunks(decoder, "a", token_ids, range(0, len(token_ids) + 1, step_rows))
    return torch.log_softmax(logits.double(), dim=-1)


def test_the_default_model_moves_little_from_float32(default_model):
    """Kullback-Leibler divergence in nats a token; measured: 0.00009 by one product, 0.00002 by three."""
    token_ids = json.loads((WORKLOADS / "chat8.json").read_text())["steps"][0]["append"][:300]
    truth = log_probs(load_model(EngineConfig(model=default_model, dtype="float32", weights="dense")), token_ids, 300)
    loaded = load_model(EngineConfig(model=default_model))
    assert isinstance(loaded.decoder._many_rows, TiledDecoder)
    for step_rows, most_nats in ((300, 0.0002), (30, 0.00005)):
        divergence = truth.exp() * (truth - log_probs(loaded, token_ids, step_rows))
        assert divergence.sum(dim=-1).mean() < most_nats


def test_the_default_model_knows_paris_in_both_modes(default_model):
    question = ChatMessage("user", "What is the capital of France?")
    earlier = [
        ChatMessage("user", "Which country lies between Spain and Germany, and what are its people known for?"),
        ChatMessage("assistant", "France lies there. Its people are known for their cooking and for their wines."),
    ]
    with Engine(EngineConfig(model=default_model, device="cpu", num_blocks=64)) as engine:
        short, long = engine.encode_chat([question]), engine.encode_chat([*earlier, question])
        assert MIN_TILED_ROWS <= len(short) <= MAX_EXACT_ROWS < len(long)
        for prompt in (short, long):
            [output] = engine.generate([prompt], SamplingParams(temperature=0.0, max_tokens=16))
            assert "Paris" in output.samples[0].text
