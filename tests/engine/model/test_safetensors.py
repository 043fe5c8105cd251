"""Folders in Hugging Face layout: whole, sharded, damaged, hostile."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

import tiny_models
from paged_chat.engine.config import EngineConfig
from paged_chat.engine.errors import ModelFileInvalid, ModelNotFound, ModelUnsupported
from paged_chat.engine.model.loader import load_model
from paged_chat.engine.model.safetensors import SafetensorsSource, weight_files


@pytest.fixture
def folder(tiny_model, tmp_path):
    """A copy of a tiny model that a test may damage."""
    return shutil.copytree(tiny_model("llama"), tmp_path / "model")


@pytest.fixture
def sharded(tmp_path):
    folder = tmp_path / "sharded"
    tiny_models.causal_lm("llama").save_pretrained(folder, max_shard_size="60KB")
    return folder


def load(folder):
    return load_model(EngineConfig(model=str(folder), dtype="float32", kernels="reference"))


def change_index(folder, change):
    path = folder / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    change(index)
    path.write_text(json.dumps(index))


def test_shards_hold_the_same_tensors_as_one_file(folder, sharded):
    assert len(weight_files(sharded)) > 3
    whole, parts = SafetensorsSource(folder), SafetensorsSource(sharded)
    assert set(whole.names) == set(parts.names)
    assert all(torch.equal(whole.read(name), parts.read(name)) for name in whole.names)
    assert torch.equal(load(folder).decoder.weights.head, load(sharded).decoder.weights.head)


def test_a_missing_shard_is_named(sharded):
    shard = weight_files(sharded)[1]
    shard.unlink()
    with pytest.raises(ModelFileInvalid, match=f"{shard.name} is missing"):
        load(sharded)


@pytest.mark.parametrize(
    "outside",
    ["../model.safetensors", "/etc/model.safetensors", "a/../../b.safetensors", "C:\\b.safetensors",
     "..\\b.safetensors", "\\\\server\\b.safetensors", "pytorch_model.bin"],
)  # fmt: skip
def test_an_index_that_leads_out_of_the_folder_is_refused(sharded, outside):
    change_index(sharded, lambda index: index["weight_map"].update({"lm_head.weight": outside}))
    with pytest.raises(ModelFileInvalid, match=r"must be a \.safetensors file in the folder"):
        load(sharded)


@pytest.mark.parametrize("weight_map", [None, {}, [], {"lm_head.weight": 3}])
def test_an_index_without_a_map_is_refused(sharded, weight_map):
    change_index(sharded, lambda index: index.update(weight_map=weight_map))
    with pytest.raises(ModelFileInvalid, match=r"index\.json"):
        load(sharded)


def test_a_pickled_model_is_refused_with_the_way_out(folder):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(ModelUnsupported, match=r"pytorch_model\.bin is pickled.*save_pretrained"):
        load(folder)


def test_a_folder_without_weights_is_refused(folder):
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelFileInvalid, match="holds no weights"):
        load(folder)


def test_a_folder_without_a_config_is_refused(folder):
    (folder / "config.json").unlink()
    with pytest.raises(ModelNotFound, match=r"holds neither config\.json nor a \.gguf file"):
        load(folder)


@pytest.mark.parametrize("kept", [0, 5, 8, 100, 5000, -1])
def test_a_truncated_file_is_refused_by_its_name(folder, kept):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(ModelFileInvalid, match=r"model\.safetensors isn't a whole safetensors file"):
        load(folder)


@pytest.mark.parametrize(
    "header",
    [
        {"lm_head.weight": {"dtype": "F32", "shape": [2**40, 2**40], "data_offsets": [0, 16]}},
        {"lm_head.weight": {"dtype": "F32", "shape": [2**62], "data_offsets": [0, 2**64 - 1]}},
        {"lm_head.weight": {"dtype": "F32", "shape": [-4], "data_offsets": [0, 16]}},
        {"lm_head.weight": {"dtype": "F32", "shape": [4], "data_offsets": [16, 0]}},
        {"lm_head.weight": {"dtype": "object", "shape": [4], "data_offsets": [0, 16]}},
        {"lm_head.weight": 7},
        [],
    ],
)
def test_a_hostile_header_is_refused(folder, header):
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + bytes(16))
    with pytest.raises(ModelFileInvalid, match=r"model\.safetensors"):
        load(folder)


def test_a_header_length_beyond_the_file_is_refused(folder):
    (folder / "model.safetensors").write_bytes((2**63).to_bytes(8, "little") + b"{}")
    with pytest.raises(ModelFileInvalid, match=r"model\.safetensors"):
        load(folder)


def rewrite(folder, change):
    path = folder / "model.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path)


def test_a_missing_tensor_is_named(folder):
    rewrite(folder, lambda tensors: tensors.pop("model.layers.1.mlp.up_proj.weight"))
    with pytest.raises(ModelFileInvalid, match=r"model\.layers\.1\.mlp\.up_proj\.weight is missing"):
        load(folder)


def test_a_misshapen_tensor_is_named_with_both_shapes(folder):
    rewrite(folder, lambda tensors: tensors.update({"model.norm.weight": torch.ones(63)}))
    with pytest.raises(ModelFileInvalid, match=r"model\.norm\.weight is \[63\].*says \[64\]"):
        load(folder)


def test_a_tensor_without_a_place_is_refused_rather_than_left_out(folder):
    rewrite(folder, lambda tensors: tensors.update({"model.layers.0.self_attn.q_proj.bias": torch.ones(64)}))
    with pytest.raises(ModelUnsupported, match=r"q_proj\.bias has no place"):
        load(folder)


def test_old_rotary_buffers_are_left_out(folder):
    rewrite(folder, lambda tensors: tensors.update({"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(8)}))
    load(folder)


def test_integer_weights_are_refused_by_their_type(folder):
    rewrite(folder, lambda tensors: tensors.update({"lm_head.weight": torch.ones(320, 64, dtype=torch.int8)}))
    with pytest.raises(ModelUnsupported, match=r"lm_head\.weight is of type I8"):
        load(folder)


def test_a_file_that_is_overwritten_does_not_change_a_loaded_model(folder):
    loaded = load(folder)
    before = loaded.decoder.weights.embedding.clone()
    tiny_models.build("llama", folder, seed=5)
    assert torch.equal(loaded.decoder.weights.embedding, before)
