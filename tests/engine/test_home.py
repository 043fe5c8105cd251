"""The folder that holds everything of a user's."""

import os
from pathlib import Path

import platformdirs
import pytest

from paged_chat.engine.home import home as home_folder
from paged_chat.engine.home import models_folder, prepared_folder


def test_the_variable_names_it(home):
    assert home_folder() == home
    assert models_folder() == home / "models"
    assert models_folder().is_dir()


def test_it_is_private(home):
    if os.name != "posix":
        pytest.skip("folders have no mode bits here")
    assert home_folder().stat().st_mode & 0o777 == 0o700
    assert models_folder().stat().st_mode & 0o777 == 0o700


def test_without_the_variable_it_is_the_systems_place_for_data(tmp_path, monkeypatch):
    monkeypatch.delenv("PAGED_CHAT_HOME")
    monkeypatch.setattr(platformdirs, "user_data_dir", lambda name, appauthor: str(tmp_path / "data" / name))
    assert home_folder() == tmp_path / "data" / "paged-chat"


def test_a_home_that_cannot_be_made_is_no_fault_by_itself(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("PAGED_CHAT_HOME", str(tmp_path / "file" / "home"))
    assert models_folder() == tmp_path / "file" / "home" / "models"


def test_models_of_one_name_in_two_folders_are_told_apart():
    first, second = prepared_folder(Path("/a/model.gguf")), prepared_folder(Path("/b/model.gguf"))
    assert first != second
    assert first.name.startswith("model-")
