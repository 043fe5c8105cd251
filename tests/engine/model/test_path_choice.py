"""Ways to compute that are checked before they serve: what is found, what is kept, and what serves instead.

The tiny model has the default model's heads, bits and numbers, for which all is compiled anyway.
"""

import json
import logging
import shutil
from dataclasses import replace

import pytest
import torch

import tiny_gguf
from paged_chat.engine.config import EngineConfig
from paged_chat.engine.errors import InvalidParameter
from paged_chat.engine.home import cache_folder
from paged_chat.engine.model import compute, loader, path_check, path_choice
from paged_chat.engine.model.decoder import Decoder
from paged_chat.engine.model.loader import load_model
from paged_chat.engine.model.packed_decoder import MAX_PACKED_ROWS, PackedDecoder
from paged_chat.engine.model.path_check import check_path
from paged_chat.engine.model.path_choice import known_checks
from paged_chat.engine.model.tiled_decoder import fits_tiled
from paged_chat.kernels.cpu.row_spans import CAN_BE_COARSE

HEADS = "heads 6/2 x 64"


@pytest.fixture(autouse=True)
def _nothing_found_yet():
    path_choice._found.clear()


@pytest.fixture
def model(tmp_path):
    """Of 4 bits, so that packed weights are the default."""
    shape = {"hidden_size": 96, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 64}
    return tiny_gguf.build("llama", tmp_path / "tiny.gguf", "Q4_0", num_hidden_layers=2, **shape)


@pytest.fixture
def with_bfloat16(monkeypatch):
    """As on a processor that multiplies bfloat16: many rows don't stay with the packed step."""
    monkeypatch.setattr(compute, "cpu_multiplies_bfloat16", lambda: True)


@pytest.fixture
def without_tiles(monkeypatch):
    monkeypatch.setattr(loader, "fits_tiled", lambda config, dtype: False)


@pytest.fixture
def without_rounding(monkeypatch):
    """As on a processor that has no products of bytes."""
    monkeypatch.setattr(loader, "can_round_prompts", lambda dtype: False)


@pytest.fixture
def spoil(monkeypatch):
    """`spoil("packed step")`: what that path computes is off; with an error given, it is raised."""
    spoilt = {}
    run = path_check._run

    def spoilt_run(decoder, config, backend, dtype):
        name = "dense step" if isinstance(decoder, Decoder) else "packed step"
        if isinstance(decoder, PackedDecoder) and decoder._many_rows is not None:
            name = "matrix tiles"
        elif isinstance(decoder, PackedDecoder) and decoder._leaves_fine:
            name = "rounded prompts"
        if backend != "cpu" or name not in spoilt:
            return run(decoder, config, backend, dtype)
        if isinstance(spoilt[name], Exception):
            raise spoilt[name]
        logits, time_ms = run(decoder, config, backend, dtype)
        logits = logits.clone()
        logits[5, 7] = spoilt[name]
        return logits, time_ms

    monkeypatch.setattr(path_check, "_run", spoilt_run)
    return lambda name, with_what=100.0: spoilt.update({name: with_what})


def load(model, **fields):
    return load_model(EngineConfig(model=str(model), device="cpu", **fields))


def config_of(model):
    return load(model, weights="dense", dtype="float32", kernels="reference").model_config


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("path", ["packed step", "dense step"])
def test_paths_pass_on_this_machine(model, path, dtype):
    check = check_path(path, config_of(model), dtype, 4)
    assert check.passed, str(check)
    assert check.fault is None
    assert check.shape == ("int4, " if path == "packed step" else "") + f"{HEADS}, {str(dtype)[6:]}"


def test_rounded_prompts_pass_where_there_are_any(model):
    if not CAN_BE_COARSE:
        pytest.skip("this processor multiplies activations as 16 bits")
    config = config_of(model)
    assert check_path("rounded prompts", config, torch.bfloat16, 4).passed
    assert check_path("rounded prompts", replace(config, num_heads=4, head_dim=32), torch.bfloat16, 8).passed


def test_prompts_are_exact_where_rounded_ones_are_off(model, spoil, without_tiles, caplog):
    if not CAN_BE_COARSE:
        pytest.skip("this processor multiplies activations as 16 bits")
    assert load(model).decoder._leaves_fine
    path_choice._found.clear()
    shutil.rmtree(cache_folder())
    spoil("rounded prompts")
    decoder = load(model).decoder
    assert not decoder._leaves_fine
    assert decoder._many_rows is None
    assert "long prompts are computed exactly instead, which is slower" in caplog.text


def test_matrix_tiles_pass_where_there_are_any(model):
    config = config_of(model)
    if not fits_tiled(config, torch.bfloat16):
        pytest.skip("this processor has no matrix tiles")
    assert check_path("matrix tiles", config, torch.bfloat16, 4).passed
    other_heads = replace(config, num_heads=4, head_dim=32)
    assert check_path("matrix tiles", other_heads, torch.bfloat16, 8).passed


def test_a_path_is_checked_once_and_the_finding_kept(model, monkeypatch):
    first = load(model, weights="int8", dtype="bfloat16")
    [check] = known_checks()
    assert (check.path, check.shape, check.passed) == ("packed step", f"int8, {HEADS}, bfloat16", True)
    path_choice._found.clear()
    monkeypatch.setattr(path_choice, "check_path", lambda *_: pytest.fail("checked again"))
    assert type(load(model, weights="int8", dtype="bfloat16").decoder) is type(first.decoder) is PackedDecoder


@pytest.mark.parametrize("damage", ["", "{}", '{"identity": 3}', "[]", "garbage"])
def test_a_damaged_record_costs_another_check_and_nothing_else(model, damage):
    load(model, weights="int8", dtype="bfloat16")
    (cache_folder() / "machine.json").write_text(damage)
    assert known_checks() == []
    load(model, weights="int8", dtype="bfloat16")
    assert len(known_checks()) == 1


def test_another_processor_kernel_or_version_is_another_machine(model, monkeypatch):
    load(model, weights="int8", dtype="bfloat16")
    monkeypatch.setattr(path_choice, "identity", lambda: "another")
    assert known_checks() == []
    load(model, weights="int8", dtype="bfloat16")
    assert json.loads((cache_folder() / "machine.json").read_text())["identity"] == "another"


def test_a_home_that_cannot_be_written_checks_once_a_process(model, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("PAGED_CHAT_HOME", str(tmp_path / "file" / "home"))
    load(model, weights="int8", dtype="bfloat16")
    monkeypatch.setattr(path_choice, "check_path", lambda *_: pytest.fail("checked again"))
    load(model, weights="int8", dtype="bfloat16")


@pytest.mark.parametrize("with_what", [100.0, float("nan"), RuntimeError("illegal\ninstruction")])
def test_dense_weights_serve_where_the_packed_step_is_off(model, spoil, caplog, with_what):
    spoil("packed step", with_what)
    with caplog.at_level(logging.WARNING):
        loaded = load(model)
    assert isinstance(loaded.decoder, Decoder)
    assert (loaded.weights, loaded.backend.name) == ("dense", "cpu")
    assert f"packed step (int4, {HEADS}" in caplog.text
    assert "dense weights serve instead, which are slower" in caplog.text
    if isinstance(with_what, RuntimeError):
        assert "can't run: RuntimeError: illegal" in caplog.text
    caplog.clear()
    load(model)  # what is known is said at every start
    assert "dense weights serve instead" in caplog.text


def test_packed_weights_that_were_asked_for_are_refused_where_they_come_out_wrong(model, spoil):
    spoil("packed step")
    with pytest.raises(InvalidParameter, match="weights='int8' come out wrong on this processor"):
        load(model, weights="int8")


def test_the_packed_step_takes_all_rows_where_dense_weights_are_off(
    model, spoil, with_bfloat16, without_tiles, without_rounding, caplog
):
    spoil("dense step")
    loaded = load(model)
    assert isinstance(loaded.decoder, PackedDecoder)
    assert loaded.decoder._many_rows is None
    assert f"dense step ({HEADS}, bfloat16) is off by" in caplog.text


def test_the_reference_serves_where_the_dense_kernels_are_off(model, spoil):
    spoil("dense step")
    loaded = load(model, weights="dense", dtype="float32")
    assert isinstance(loaded.decoder, Decoder)
    assert loaded.backend.name == loaded.decoder.backend.name == "reference"


def test_dense_weights_take_many_rows_where_matrix_tiles_are_off(model, spoil, with_bfloat16, caplog):
    if not fits_tiled(config_of(model), torch.bfloat16):
        pytest.skip("this processor has no matrix tiles")
    spoil("matrix tiles")
    loaded = load(model)
    assert isinstance(loaded.decoder._many_rows, Decoder)
    assert "long prompts are computed without them" in caplog.text


def test_dense_weights_take_over_where_they_were_measured_to_be_faster(
    model, with_bfloat16, without_tiles, without_rounding, monkeypatch
):
    monkeypatch.setattr(path_choice, "measure_crossover", lambda *_: 64)
    assert load(model).decoder._min_many_rows == 64
    monkeypatch.setattr(path_choice, "measure_crossover", lambda *_: pytest.fail("measured again"))
    assert load(model).decoder._min_many_rows == 64


def test_a_constant_serves_until_a_measurement_can_be_believed(
    model, with_bfloat16, without_tiles, without_rounding, monkeypatch
):
    monkeypatch.setattr(path_choice, "measure_crossover", lambda *_: None)
    assert load(model).decoder._min_many_rows == MAX_PACKED_ROWS + 1
    monkeypatch.setattr(path_choice, "measure_crossover", lambda *_: 128)
    assert load(model).decoder._min_many_rows == 128


@pytest.mark.parametrize(("kept", "used"), [(-5, 48), (1, 48), (10**9, 512)])
def test_a_record_that_says_something_absurd_is_held_within_bounds(
    model, with_bfloat16, without_tiles, without_rounding, monkeypatch, kept, used
):
    monkeypatch.setattr(path_choice, "measure_crossover", lambda *_: kept)
    assert load(model).decoder._min_many_rows == used


def test_eight_bits_by_name_never_have_dense_weights_beside_them(model, with_bfloat16):
    assert load(model, weights="int8").decoder._many_rows is None
