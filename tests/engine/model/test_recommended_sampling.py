"""What makers recommend for their models, as their files say it."""

import json

import pytest

from paged_chat.engine.model.recommended_sampling import recommended_sampling


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    return tmp_path


def recommended(folder, text):
    (folder / "generation_config.json").write_text(text)
    return recommended_sampling(str(folder))


@pytest.mark.parametrize("name", ["smollm2-135m", "SmolLM2", "default"])
def test_the_catalogue_says_it_of_its_model_before_that_is_fetched(name, home):
    assert recommended_sampling(name) == {"temperature": 0.2, "top_p": 0.9, "repetition_penalty": 1.1}


def test_a_folder_says_it_in_its_generation_config(folder):
    values = {"do_sample": True, "temperature": 0.6, "top_k": 20, "top_p": 0.95, "eos_token_id": [2], "max_length": 9}
    assert recommended(folder, json.dumps(values)) == {"temperature": 0.6, "top_k": 20, "top_p": 0.95}


def test_a_model_that_shall_not_be_drawn_from_takes_the_likeliest(folder):
    assert recommended(folder, '{"do_sample": false, "temperature": 0.6}') == {"temperature": 0.0}


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "[]",
        "",
        "{",
        "\xff",
        '{"temperature": -1, "top_k": 2.5, "top_p": 0, "min_p": "0.1", "repetition_penalty": true}',
    ],
)
def test_what_can_not_be_meant_recommends_nothing(folder, text):
    assert recommended(folder, text) == {}


def test_nothing_is_known_of_other_files_and_of_models_that_are_not_here(folder, monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", str(folder / "hub"))
    (folder / "model.gguf").write_bytes(b"GGUF")
    for model in (str(folder), str(folder / "model.gguf"), "owner/not-here", "no model at all", ""):
        assert recommended_sampling(model) == {}
