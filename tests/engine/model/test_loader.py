"""What a load chooses, refuses and tells."""

import pytest
import torch

import tiny_models
from paged_chat.engine.config import EngineConfig
from paged_chat.engine.errors import InvalidParameter, ModelNotFound, OutOfMemory
from paged_chat.engine.model import compute, memory
from paged_chat.engine.model.compute import choose_dtype
from paged_chat.engine.model.loader import load_model


def load(model, **fields):
    return load_model(EngineConfig(model=str(model), **{"kernels": "reference", **fields}))


def test_what_is_told(tiny_model):
    folder = tiny_model("llama")
    loaded = load(folder, dtype="float32")
    assert loaded.name == str(folder)
    assert loaded.tokenizer_source == folder
    assert (loaded.device, loaded.dtype) == (torch.device("cpu"), torch.float32)
    assert loaded.context_window == 2048
    assert len(loaded.fingerprint) == 16
    assert loaded.backend.name == "reference"
    assert loaded.decoder.cos.shape == (2048, 8)


def test_a_shorter_window_can_be_asked_for_and_a_longer_one_not(tiny_model):
    assert load(tiny_model("llama"), max_model_len=100).context_window == 100
    assert load(tiny_model("llama"), max_model_len=10**6).context_window == 2048


def test_auto_is_bfloat16_only_where_the_processor_multiplies_it(monkeypatch):
    cpu = torch.device("cpu")
    monkeypatch.setattr(compute, "cpu_multiplies_bfloat16", lambda: True)
    assert choose_dtype("auto", cpu) == torch.bfloat16
    monkeypatch.setattr(compute, "cpu_multiplies_bfloat16", lambda: False)
    assert choose_dtype("auto", cpu) == torch.float32
    assert choose_dtype("auto", torch.device("cuda")) == torch.bfloat16
    assert choose_dtype("float16", cpu) == torch.float16


def test_a_torch_without_its_private_names_is_a_processor_without_bfloat16(monkeypatch):
    for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"):
        monkeypatch.delattr(torch.cpu, name, raising=False)
    assert compute.cpu_multiplies_bfloat16() is False


def test_a_device_that_is_not_there_is_refused(tiny_model, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(InvalidParameter, match="0 CUDA devices"):
        load(tiny_model("llama"), device="cuda")


def test_kernels_that_cannot_run_on_a_device_are_refused(tiny_model):
    with pytest.raises(InvalidParameter, match="triton kernels"):
        load(tiny_model("llama"), device="cpu", kernels="triton")


def test_a_model_that_does_not_fit_is_refused_with_both_numbers(tiny_model, monkeypatch):
    monkeypatch.setattr(memory, "free_memory", lambda device: 2**18)
    with pytest.raises(OutOfMemory, match=r"needs 0 MiB on cpu, but 0 MiB are free"):
        load(tiny_model("llama"), dtype="float32")


def test_a_claim_of_terabytes_is_refused_before_anything_is_allocated(tiny_model, tmp_path):
    """A hostile config: sizes that are each in range."""
    import json
    import shutil

    folder = shutil.copytree(tiny_model("llama"), tmp_path / "huge")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "vocab_size": 2**24, "intermediate_size": 2**20}))
    with pytest.raises(Exception, match="the model's configuration says"):
        load(folder)


def test_free_memory_is_a_number_on_linux():
    free = memory.free_memory(torch.device("cpu"))
    assert free is None or 2**20 < free < 2**50


def test_other_weights_under_the_same_name_have_another_fingerprint(tmp_path):
    """E4, for a folder that was saved over."""
    folder = tiny_models.build("llama", tmp_path / "model")
    first = load(folder)
    assert load(folder).fingerprint == first.fingerprint
    tiny_models.build("llama", folder, seed=1)
    assert load(folder).fingerprint != first.fingerprint


def test_other_rotary_parameters_with_the_same_weights_have_another_fingerprint(tmp_path):
    first = load(tiny_models.build("llama", tmp_path / "a"))
    second = load(tiny_models.build("linear", tmp_path / "b"))
    assert torch.equal(first.decoder.weights.embedding, second.decoder.weights.embedding)
    assert first.fingerprint != second.fingerprint


def test_the_same_model_elsewhere_has_the_same_fingerprint(tmp_path):
    first = load(tiny_models.build("llama", tmp_path / "a"))
    second = load(tiny_models.build("llama", tmp_path / "b"))
    assert first.fingerprint == second.fingerprint


def test_a_model_that_is_nowhere(tmp_path):
    with pytest.raises(ModelNotFound):
        load(tmp_path / "nowhere")
