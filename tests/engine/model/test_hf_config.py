"""config.json of transformers 5 and of older versions, and what is refused."""

import json

import pytest

from paged_chat.engine.errors import ModelFileInvalid, ModelUnsupported
from paged_chat.engine.model.config import RopeConfig
from paged_chat.engine.model.fields import Fields, read_json
from paged_chat.engine.model.hf_config import config_from_hf

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 320,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-5,
}


def parse(generation=None, /, **changes):
    values = {name: value for name, value in {**LLAMA, **changes}.items() if value != "absent"}
    return config_from_hf(
        Fields("config.json", values), None if generation is None else Fields("generation_config.json", generation)
    )


def test_a_small_llama():
    config = parse()
    assert (config.family, config.vocab_size, config.hidden_size, config.intermediate_size) == ("llama", 320, 64, 96)
    assert (config.num_layers, config.num_heads, config.num_kv_heads, config.head_dim) == (4, 4, 2, 16)
    assert (config.windows, config.nope) == ((None,) * 4, (False,) * 4)
    assert (config.attention_bias, config.output_bias, config.mlp_bias) == (False, False, False)
    assert (config.qk_norm, config.tie_embeddings) == (False, False)
    assert config.rope == RopeConfig(theta=10000.0)


NEW_LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 256,
}
OLD_LLAMA3 = {name: value for name, value in NEW_LLAMA3.items() if name != "rope_theta"}


@pytest.mark.parametrize(
    ("new", "old"),
    [
        ({"rope_parameters": NEW_LLAMA3}, {"rope_theta": 500000.0, "rope_scaling": OLD_LLAMA3}),
        (
            {"rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}},
            {"rope_scaling": {"type": "linear", "factor": 4}},
        ),
        (
            {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}},
            {"rope_theta": 1000000, "rope_scaling": None},
        ),
        (
            {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0,
                                 "original_max_position_embeddings": 512}},
            {"rope_theta": 1e6, "rope_scaling": {"type": "yarn", "factor": 4.0,
                                                 "original_max_position_embeddings": 512}},
        ),
        (
            {"rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 5e5}}},
            {"rope_theta": 500000.0},
        ),
    ],
)  # fmt: skip
def test_rotary_parameters_of_version_5_and_of_older_ones_mean_the_same(new, old):
    assert parse(**new).rope == parse(**old).rope


def test_yarn_has_transformers_attention_factor():
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512}
    assert parse(rope_scaling=yarn).rope.attention_factor == pytest.approx(1.138629436)
    assert parse(rope_scaling={**yarn, "attention_factor": 0.5}).rope.attention_factor == 0.5


def test_generation_config_names_the_end_tokens():
    assert parse({"eos_token_id": [7, 9, 7]}, eos_token_id=2).eos_token_ids == (7, 9)
    assert parse({}, eos_token_id=2).eos_token_ids == (2,)
    assert parse(eos_token_id=None).eos_token_ids == ()


def test_windows_by_family():
    mistral, qwen2 = {"architectures": ["MistralForCausalLM"]}, {"architectures": ["Qwen2ForCausalLM"]}
    assert parse(**mistral, sliding_window=24).windows == (24,) * 4
    assert parse(**mistral, sliding_window=None).windows == (None,) * 4
    assert parse(**mistral).windows == (4096,) * 4
    assert parse(**qwen2, sliding_window=24).windows == (None,) * 4
    used = {"use_sliding_window": True, "sliding_window": 24}
    assert parse(**qwen2, **used, max_window_layers=3).windows == (None, None, None, 24)
    kinds = ["sliding_attention", "full_attention"] * 2
    assert parse(**qwen2, **used, layer_types=kinds).windows == (24, None, 24, None)
    with pytest.raises(ModelUnsupported, match="chunked_attention"):
        parse(**qwen2, **used, layer_types=["chunked_attention"] * 4)


def test_nope_layers_of_smollm3():
    smollm3 = {"architectures": ["SmolLM3ForCausalLM"]}
    assert parse(**smollm3).nope == (False, False, False, True)
    assert parse(**smollm3, no_rope_layer_interval=2).nope == (False, True, False, True)
    assert parse(**smollm3, no_rope_layers=[0, 1, 1, 1]).nope == (True, False, False, False)
    assert parse(**smollm3).rope.theta == 2_000_000
    assert parse(**smollm3).tie_embeddings


def test_biases_by_family():
    qwen2 = parse(architectures=["Qwen2ForCausalLM"])
    assert (qwen2.attention_bias, qwen2.output_bias) == (True, False)
    llama = parse(attention_bias=True, mlp_bias=True)
    assert (llama.attention_bias, llama.output_bias, llama.mlp_bias) == (True, True, True)
    assert parse(architectures=["Qwen3ForCausalLM"]).qk_norm


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"architectures": ["GemmaForCausalLM"]}, "GemmaForCausalLM"),
        ({"architectures": ["LlamaForSequenceClassification"]}, "LlamaForSequenceClassification"),
        ({"architectures": None, "model_type": "mamba"}, "mamba"),
        ({"hidden_act": "gelu"}, "gelu"),
        ({"quantization_config": {"quant_method": "awq"}}, "awq"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ({"rope_scaling": {"rope_type": "longrope", "factor": 4.0}}, "longrope"),
        ({"rope_scaling": {"type": "dynamic", "factor": 4.0}}, "dynamic"),
        (
            {"rope_parameters": {"full_attention": {"rope_theta": 1e4}, "sliding_attention": {"rope_theta": 1e6}}},
            "differ between layers",
        ),
    ],
)
def test_what_is_not_run_is_refused_by_name(changes, named):
    with pytest.raises(ModelUnsupported, match=named):
        parse(**changes)


def test_the_refusal_of_an_architecture_lists_what_works():
    with pytest.raises(ModelUnsupported, match=r"Llama 2 and 3.*Mistral.*Qwen2.*Qwen3.*SmolLM3"):
        parse(architectures=["MambaForCausalLM"])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("vocab_size", -1),
        ("vocab_size", 0),
        ("vocab_size", 2**40),
        ("vocab_size", "many"),
        ("vocab_size", True),
        ("vocab_size", None),
        ("hidden_size", 65),
        ("hidden_size", 10**12),
        ("num_hidden_layers", 10**9),
        ("num_hidden_layers", 2.5),
        ("num_attention_heads", 0),
        ("num_key_value_heads", 3),
        ("num_key_value_heads", [2, 2]),
        ("head_dim", 15),
        ("head_dim", 10**6),
        ("rms_norm_eps", float("nan")),
        ("rms_norm_eps", 0),
        ("rms_norm_eps", float("inf")),
        ("max_position_embeddings", 10**12),
        ("rope_theta", -5.0),
        ("rope_scaling", "linear"),
        ("rope_scaling", {"rope_type": "linear", "factor": 0}),
        ("rope_scaling", {"rope_type": "linear"}),
        ("rope_scaling", {**OLD_LLAMA3, "high_freq_factor": 0.5}),
        ("rope_scaling", {"rope_type": 7}),
        ("tie_word_embeddings", "yes"),
        ("eos_token_id", "</s>"),
        ("eos_token_id", [2, None]),
        ("eos_token_id", -5),
    ],
)
def test_values_that_cannot_be_are_refused(field, value):
    with pytest.raises(ModelFileInvalid, match=r"config\.json"):
        parse(**{field: value})


def test_a_hostile_value_is_not_quoted_whole():
    with pytest.raises(ModelFileInvalid) as raised:
        parse(vocab_size="9" * 10**6)
    assert len(str(raised.value)) < 300


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '"text"', "[" * 100_000, '{"a": ' * 50_000, "\x00\xff"])
def test_files_that_hold_no_object_are_refused(tmp_path, text):
    path = tmp_path / "config.json"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(ModelFileInvalid, match=r"config\.json"):
        read_json(path)


def test_a_missing_file_is_refused_by_its_name(tmp_path):
    with pytest.raises(ModelFileInvalid, match=r"nowhere\.json can't be read: No such file"):
        read_json(tmp_path / "nowhere.json")


@pytest.mark.parametrize("family", ["llama3", "yarn", "linear", "mistral", "qwen2-window", "smollm3"])
def test_files_that_transformers_writes_are_read(tiny_model, family):
    folder = tiny_model(family)
    written = json.loads((folder / "config.json").read_text())
    config = config_from_hf(read_json(folder / "config.json"), read_json(folder / "generation_config.json"))
    assert config.num_layers == written["num_hidden_layers"]
    assert config.rope.kind == written["rope_parameters"]["rope_type"]
    assert config.eos_token_ids == (2,)
