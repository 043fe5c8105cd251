"""`paged-chat models`: the catalogue as a person and a script see it."""

import json

import pytest


@pytest.fixture(autouse=True)
def empty_hub_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))


def test_list_names_the_default_model_and_its_licence(run_cli):
    [line] = run_cli("models", "list").out.splitlines()
    assert line.startswith("smollm2-135m ")
    assert "93 MB" in line
    assert "to fetch" in line
    assert "Apache-2.0" in line


def test_list_as_json_is_one_line_a_model(run_cli):
    [model] = map(json.loads, run_cli("models", "list", "--json").out.splitlines())
    assert (model["name"], model["origin"], model["path"]) == ("smollm2-135m", "catalogue", None)


def test_a_fetched_model_is_listed_found_and_removed(run_cli, home):
    file = home / "models" / "smollm2-135m" / "SmolLM2-135M-Instruct.Q4_1.gguf"
    file.parent.mkdir(parents=True)
    with file.open("wb") as sparse:
        sparse.truncate(98_362_432)
    assert "here" in run_cli("models", "list").out
    assert run_cli("models", "path", "smollm2-135m").out == f"{file}\n"
    assert run_cli("models", "pull", "smollm2-135m").out == f"{file}\n"
    assert run_cli("models", "rm", "smollm2-135m").out == "smollm2-135m: 98 MB freed\n"
    assert not file.exists()


def test_path_of_a_model_that_is_not_here_exits_1(run_cli):
    ended = run_cli("models", "path", "smollm2-135m")
    assert (ended.code, ended.out) == (1, "")
    assert "paged-chat models pull smollm2-135m" in ended.err


def test_an_unknown_model_is_named(run_cli):
    for command in ("pull", "path", "rm"):
        ended = run_cli("models", command, "no-such-model")
        assert (ended.code, ended.out) == (1, "")
        assert "there is no model 'no-such-model'" in ended.err


def test_what_is_not_here_to_be_removed_leads_to_the_list_of_what_is(run_cli):
    for model in ("no-such-model", "owner/name", "smollm2-135m", ""):
        ended = run_cli("models", "rm", model)
        assert (ended.code, ended.out) == (1, "")
        assert f"no model '{model}' on this machine" in ended.err
        assert "`paged-chat models list`" in ended.err
        assert "pull" not in ended.err


def test_what_can_be_no_model_is_refused(run_cli, tmp_path):
    for command in ("pull", "path", "rm"):
        assert run_cli("models", command, "").err.startswith("Error: there is no model ''")
        assert f"{tmp_path} holds neither config.json nor a .gguf file" in run_cli("models", command, str(tmp_path)).err
    long_name = run_cli("models", "path", "m" * 5000).err
    assert f"there is no model '{'m' * 200}' and 4,800 characters more" in long_name


def test_models_without_a_command_shows_them(run_cli):
    ended = run_cli("models")
    assert ended.code == 2
    assert all(command in ended.out + ended.err for command in ("list", "pull", "path", "rm"))
