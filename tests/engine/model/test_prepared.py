"""Prepared weights: the second load is the first one's equal, whatever happened to the files in between."""

import os
import shutil
import threading

import pytest
import torch

import tiny_gguf
from paged_chat.engine.config import EngineConfig
from paged_chat.engine.home import prepared_folder
from paged_chat.engine.model import loader, prepared
from paged_chat.engine.model.loader import load_model


@pytest.fixture
def model_file(tmp_path):
    return tiny_gguf.build("llama-bias", tmp_path / "tiny.gguf")


def load(path, dtype="float32", on_progress=lambda report: None):
    return load_model(EngineConfig(model=str(path), dtype=dtype, kernels="reference"), on_progress)


def stages(path, dtype="float32"):
    """The load, and which stages it reported."""
    reports = []
    return load(path, dtype, reports.append), {report.stage for report in reports}


def tensors(loaded):
    weights = loaded.decoder.weights
    layers = [getattr(layer, role) for layer in weights.layers for role in type(layer).__dataclass_fields__]
    return [tensor for tensor in (weights.embedding, *layers, weights.norm, weights.head) if tensor is not None]


def assert_equal(first, second):
    assert first.model_config == second.model_config
    assert first.fingerprint == second.fingerprint
    for one, other in zip(tensors(first), tensors(second), strict=True):
        assert one.dtype == other.dtype
        assert torch.equal(one, other)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_the_second_load_is_equal_and_converts_nothing(model_file, dtype):
    first, first_stages = stages(model_file, dtype)
    second, second_stages = stages(model_file, dtype)
    assert ("convert" in first_stages, "convert" in second_stages) == (True, False)
    assert_equal(first, second)
    assert [path.name for path in prepared_folder(model_file).iterdir()] == [f"dense-{dtype}.safetensors"]


def test_float32_is_what_the_package_decodes_to_the_bit(tmp_path):
    import gguf
    import numpy as np

    path = tiny_gguf.build("qwen2", tmp_path / "tiny.gguf", "Q4_1")
    load(path)
    loaded = load(path)
    by_name = {
        tensor.name: gguf.dequantize(tensor.data, tensor.tensor_type) for tensor in gguf.GGUFReader(path).tensors
    }
    for layer, weights in enumerate(loaded.decoder.weights.layers):
        qkv = np.concatenate([by_name[f"blk.{layer}.attn_{part}.weight"] for part in "qkv"])
        gate_up = np.concatenate([by_name[f"blk.{layer}.ffn_{part}.weight"] for part in ("gate", "up")])
        np.testing.assert_array_equal(weights.qkv.numpy(), qkv)
        np.testing.assert_array_equal(weights.gate_up.numpy(), gate_up)


@pytest.mark.parametrize("kind", ["cut", "flipped", "emptied", "garbage", "header"])
def test_a_damaged_file_is_made_again_silently(model_file, kind):
    first = load(model_file)
    [path] = prepared_folder(model_file).iterdir()
    content = bytearray(path.read_bytes())
    if kind == "flipped":
        content[-100] ^= 1
    damaged = {"cut": content[:-40], "flipped": content, "emptied": b"", "garbage": b"\xff" * 500,
               "header": content[:8] + b"[" + content[9:]}[kind]  # fmt: skip
    # Replaced, not overwritten: the first load still has the old file mapped.
    path.unlink()
    path.write_bytes(damaged)
    second, second_stages = stages(model_file)
    assert "convert" in second_stages
    assert_equal(first, second)
    assert "convert" not in stages(model_file)[1]


def test_other_weights_under_the_same_name_are_noticed(model_file):
    """E4: the fingerprint, which every cache key starts from, differs."""
    first = load(model_file)
    size = model_file.stat().st_size
    tiny_gguf.build("llama-bias", model_file, seed=1)
    assert model_file.stat().st_size == size
    second = load(model_file)
    assert second.fingerprint != first.fingerprint
    assert not torch.equal(second.decoder.weights.embedding, first.decoder.weights.embedding)


def test_an_exchanged_file_with_the_old_time_is_noticed(model_file, tmp_path):
    first = load(model_file)
    state = model_file.stat()
    other = tiny_gguf.build("llama-bias", tmp_path / "other.gguf", seed=1)
    os.utime(other, ns=(state.st_atime_ns, state.st_mtime_ns))
    os.replace(other, model_file)
    assert load(model_file).fingerprint != first.fingerprint


def test_a_touched_file_is_the_same_model(model_file):
    first = load(model_file)
    os.utime(model_file)
    assert_equal(first, load(model_file))


def test_a_file_of_another_format_version_is_made_again(model_file, monkeypatch):
    load(model_file)
    monkeypatch.setattr(prepared, "FORMAT_VERSION", 3)
    assert "convert" in stages(model_file)[1]
    assert "convert" not in stages(model_file)[1]


def test_a_full_disk_only_costs_the_speed(model_file, monkeypatch):
    expected = load(model_file)
    shutil.rmtree(prepared_folder(model_file))
    usage = type("Usage", (), {"free": 1000})
    monkeypatch.setattr(prepared.shutil, "disk_usage", lambda path: usage)
    assert_equal(expected, load(model_file))
    assert not list(prepared_folder(model_file).iterdir())


def test_a_disk_that_fills_up_meanwhile_only_costs_the_speed(model_file, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    loaded = load(model_file)
    assert loaded.decoder.weights.embedding.shape == (320, 64)
    assert not list(prepared_folder(model_file).iterdir())


def test_a_home_that_cannot_be_written_only_costs_the_speed(model_file, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("PAGED_CHAT_HOME", str(tmp_path / "file" / "home"))
    assert load(model_file).decoder.weights.embedding.shape == (320, 64)


def test_ctrl_c_leaves_no_half_file(model_file):
    def interrupt(report):
        if report.stage == "convert":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        load(model_file, on_progress=interrupt)
    assert not list(prepared_folder(model_file).iterdir())


def test_two_at_once_make_one_sound_file(model_file):
    loaded = []
    threads = [threading.Thread(target=lambda: loaded.append(load(model_file))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert_equal(loaded[0], loaded[1])
    assert_equal(loaded[0], loaded[2])
    assert [path.name for path in prepared_folder(model_file).iterdir()] == ["dense-float32.safetensors"]


def test_tensors_begin_on_cache_lines(model_file):
    load(model_file)
    assert load(model_file).decoder.weights.embedding.data_ptr() % 64 == 0


def test_nothing_is_prepared_from_a_folder(tiny_model, home):
    load(tiny_model("llama"))
    assert not (home / "models" / "prepared").exists()
    assert loader.digest([tiny_model("llama") / "model.safetensors"])
