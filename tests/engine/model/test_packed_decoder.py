"""The packed step, against the dense decoder over the very weights that were packed; and which loads choose it."""

import pytest
import torch

import tiny_gguf
import tiny_models
from packed_twin import dense_twin
from paged_chat.engine.config import EngineConfig
from paged_chat.engine.errors import InvalidParameter
from paged_chat.engine.home import prepared_folder
from paged_chat.engine.model import compute, loader
from paged_chat.engine.model.decoder import Decoder
from paged_chat.engine.model.loader import load_model
from paged_chat.engine.model.packed_decoder import PackedDecoder
from paged_decoder import PagedDecoder

# One of each kind; their shapes fit as they are.
FAMILIES = ("llama", "llama-tied", "llama-bias", "llama-group3", "llama3", "mistral", "qwen2", "qwen2-window", "qwen3",
            "smollm3", "yarn")  # fmt: skip
PROMPT = torch.randint(3, tiny_models.VOCAB_SIZE, (100,), generator=torch.Generator().manual_seed(1)).tolist()
OTHER = torch.randint(3, tiny_models.VOCAB_SIZE, (61,), generator=torch.Generator().manual_seed(2)).tolist()
# Of the spread of the logits: what rounding activations to two bytes costs at most, and on the average.
TOLERANCE, MEAN_TOLERANCE = 3e-3, 3e-4


def load(model, weights="int8", **fields):
    return load_model(EngineConfig(model=str(model), weights=weights, **{"dtype": "float32", **fields}))


def paged(model, weights="int8", **fields):
    loaded = load(model, weights, **fields)
    return PagedDecoder(loaded.decoder, dtype=loaded.dtype)


def assert_near(logits, expected):
    assert not logits.isnan().any()
    error = (logits - expected).abs() / expected.std()
    assert error.max() < TOLERANCE
    assert error.mean() < MEAN_TOLERANCE


@pytest.mark.parametrize("weights", ["int8", "int4"])
@pytest.mark.parametrize("family", FAMILIES)
def test_logits_are_those_of_the_same_weights_in_float32(tiny_model, family, weights):
    [expected] = dense_twin(tiny_model(family), bits=int(weights[-1])).step(("a", PROMPT))
    [logits] = paged(tiny_model(family), weights).step(("a", PROMPT))
    assert logits.shape == (100, tiny_models.VOCAB_SIZE)
    assert_near(logits, expected)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("family", FAMILIES)
def test_whole_in_chunks_and_token_by_token_are_equal_to_the_bit(tiny_model, family, dtype):
    model = tiny_model(family)
    [whole] = paged(model, dtype=dtype).step(("a", PROMPT))
    chunked = paged(model, dtype=dtype)
    parts = [chunked.step(("a", PROMPT[start:stop]))[0] for start, stop in [(0, 7), (7, 39), (39, 48), (48, 100)]]
    assert torch.cat(parts).equal(whole)
    single = paged(model, dtype=dtype)
    assert torch.cat([single.step(("a", [token_id]))[0] for token_id in PROMPT]).equal(whole)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_sequence_among_others_is_equal_to_the_bit(tiny_model, family):
    model = tiny_model(family)
    [expected], [other] = paged(model).step(("a", PROMPT)), paged(model).step(("b", OTHER))
    decoder = paged(model)
    first = decoder.step(("a", PROMPT[:40]), ("b", OTHER[:17]))
    beside = decoder.step(("c", PROMPT), ("a", [PROMPT[40]]), ("b", OTHER[17:60]))
    last = decoder.step(("b", [OTHER[60]]), ("a", PROMPT[41:]), all_rows=False)
    assert torch.cat([first[1], beside[2], last[0]]).equal(other)
    assert torch.cat([first[0], beside[1]]).equal(expected[:41])
    assert beside[0].equal(expected)
    assert last[1].equal(expected[-1:])


def test_a_context_of_several_pieces_is_equal_to_the_bit(tiny_model):
    """Attention cuts contexts every 256 tokens; the sliding window of one family begins in the middle of a piece."""
    far = torch.randint(3, tiny_models.VOCAB_SIZE, (530,), generator=torch.Generator().manual_seed(3)).tolist()
    for family in ("llama", "qwen2-window"):
        [whole] = paged(tiny_model(family)).step(("a", far))
        assert_near(whole, dense_twin(tiny_model(family), bits=8).step(("a", far))[0])
        decoder = paged(tiny_model(family))
        decoder.step(("a", far[:250]))
        for start, stop in [(250, 255), (255, 256), (256, 257), (257, 500), (500, 530)]:
            assert decoder.step(("a", far[start:stop]))[0].equal(whole[start:stop])


def test_rotary_tables_grow_with_the_longest_context(tiny_model):
    decoder = paged(tiny_model("llama"))
    [whole] = paged(tiny_model("llama")).step(("a", PROMPT))
    inner = decoder.decoder._weights
    inner._cos, inner._sin = inner._cos[:16], inner._sin[:16]
    assert torch.cat([decoder.step(("a", PROMPT[:20]))[0], decoder.step(("a", PROMPT[20:]))[0]]).equal(whole)
    assert len(inner._cos) >= 100


def test_a_vocabulary_that_fills_no_tile(tiny_model):
    model = tiny_model("llama", vocab_size=325)
    [logits] = paged(model).step(("a", PROMPT))
    assert logits.shape == (100, 325)
    assert_near(logits, dense_twin(model, bits=8).step(("a", PROMPT))[0])


# What a load chooses


@pytest.fixture
def four_bit_file(tmp_path):
    return tiny_gguf.build("llama", tmp_path / "tiny.gguf", "Q4_1")


def test_auto_takes_as_many_bits_as_the_file_has(tiny_model, four_bit_file, tmp_path):
    assert load(four_bit_file, "auto", dtype="auto").weights == "int4"
    assert load(tiny_gguf.build("llama", tmp_path / "q4_0.gguf", "Q4_0"), "auto", dtype="auto").weights == "int4"
    assert load(tiny_gguf.build("llama", tmp_path / "q8_0.gguf", "Q8_0"), "auto", dtype="auto").weights == "int8"
    loaded = load(tiny_model("llama"), "auto", dtype="auto")
    assert loaded.weights == "int8"
    assert isinstance(loaded.decoder, PackedDecoder)


def test_auto_is_dense_where_a_dtype_was_asked_for_or_packing_does_not_fit(tiny_model, four_bit_file):
    assert load(four_bit_file, "auto", dtype="float32").weights == "dense"
    assert load(four_bit_file, "auto", dtype="bfloat16").weights == "dense"
    assert load(four_bit_file, "auto", dtype="auto", kernels="reference").weights == "dense"
    assert load(four_bit_file, "auto", dtype="auto", block_size=8).weights == "dense"
    loaded = load(tiny_model("llama", intermediate_size=80), "auto", dtype="auto")
    assert loaded.weights == "dense"
    assert isinstance(loaded.decoder, Decoder)


@pytest.mark.parametrize("weights", ["int8", "int4"])
@pytest.mark.parametrize(
    ("overrides", "fields"),
    [
        ({}, {"block_size": 8}),
        ({}, {"kernels": "reference"}),
        ({"intermediate_size": 80}, {}),
        ({"hidden_size": 48, "num_attention_heads": 2, "num_key_value_heads": 1}, {}),
        ({"head_dim": 8, "num_attention_heads": 8}, {}),
    ],
)
def test_packed_weights_that_cannot_be_had_are_refused(tiny_model, weights, overrides, fields):
    with pytest.raises(InvalidParameter, match=f"weights='{weights}' need the cpu kernels.*choose weights='dense'"):
        load(tiny_model("llama", **overrides), weights, **fields)


def test_only_auto_sends_long_prompts_through_dense_weights(tiny_model, monkeypatch):
    """Where they can't be rounded."""
    monkeypatch.setattr(loader, "can_round_prompts", lambda dtype: False)
    monkeypatch.setattr(compute, "cpu_multiplies_bfloat16", lambda: True)
    assert load(tiny_model("llama"), "auto", dtype="auto").decoder._many_rows is not None
    assert load(tiny_model("llama"), "int8", dtype="auto").decoder._many_rows is None
    monkeypatch.setattr(compute, "cpu_multiplies_bfloat16", lambda: False)
    loaded = load(tiny_model("llama"), "auto", dtype="auto")
    assert loaded.decoder._many_rows is None
    assert loaded.dtype == torch.bfloat16  # of the cache: any processor widens it quickly
    assert load(tiny_model("llama"), "dense", dtype="auto").dtype == torch.float32


# What is prepared


def stages(path, weights):
    """The logits of a prompt, and which stages the load reported."""
    reports = []
    config = EngineConfig(model=str(path), weights=weights, dtype="float32")
    loaded = load_model(config, reports.append)
    return PagedDecoder(loaded.decoder).step(("a", PROMPT))[0], {report.stage for report in reports}


@pytest.mark.parametrize("weights", ["int8", "int4"])
def test_the_second_load_packs_nothing_and_is_equal(tiny_model, weights):
    model = tiny_model("qwen3")
    first, first_stages = stages(model, weights)
    second, second_stages = stages(model, weights)
    assert ("convert" in first_stages, "convert" in second_stages) == (True, False)
    assert second.equal(first)
    assert [path.name for path in prepared_folder(model).iterdir()] == [f"packed-{weights}.safetensors"]


@pytest.mark.parametrize("kind", ["cut", "flipped", "emptied"])
def test_a_damaged_file_is_packed_again(four_bit_file, kind):
    first, _ = stages(four_bit_file, "int4")
    path = prepared_folder(four_bit_file) / "packed-int4.safetensors"
    content = bytearray(path.read_bytes())
    content[-100] ^= kind == "flipped"
    # Replaced, not overwritten: the first load may still have the old file mapped.
    path.unlink()
    path.write_bytes({"cut": content[:-40], "flipped": content, "emptied": b""}[kind])
    second, second_stages = stages(four_bit_file, "int4")
    assert "convert" in second_stages
    assert second.equal(first)
    assert "convert" not in stages(four_bit_file, "int4")[1]


def test_a_home_that_cannot_be_written_only_costs_the_speed(tiny_model, tmp_path, monkeypatch):
    expected, _ = stages(tiny_model("llama"), "int8")
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("PAGED_CHAT_HOME", str(tmp_path / "file" / "home"))
    assert stages(tiny_model("llama"), "int8")[0].equal(expected)


def test_a_file_of_another_model_has_another_fingerprint_packed_too(tmp_path):
    """E4."""
    folder = tiny_models.build("llama", tmp_path / "model")
    first = load(folder).fingerprint
    assert load(folder).fingerprint == first
    assert load(folder, "dense").fingerprint == first  # the cache's key holds the form of the weights beside it
    tiny_models.build("llama", folder, seed=1)
    assert load(folder).fingerprint != first
