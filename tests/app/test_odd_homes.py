"""PAGED_CHAT_HOME as nobody expects it: it works, or the error names it and what to do, and what is there stays."""

import asyncio
import json
import os
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from paged_chat.app.commands.engine_options import DEFAULT_MODEL
from paged_chat.app.troubles import find_troubles
from paged_chat.tui import command
from paged_chat.tui.app import PagedChatTui
from patience import PATIENCE_S

CHAT = [{"role": "user", "content": "Where do herons sleep?"}, {"role": "assistant", "content": "In trees."}]
WORKLOAD = {"name": "one", "steps": [{"chat": "a", "append": [1, 2, 3], "append_end": [2], "reply_tokens": 1}]}
ODD = {
    "spaces": " a  b ",
    "combining marks and emoji": "e\u0301 👩\u200d🌾",
    "no UTF-8": os.fsdecode(b"x\xff\xfe"),
    "control characters": "a\nb\x1b[31m",
    "what SQLite's addresses use": "a?mode=ro&b#c%20d",
    "400 characters": "/".join(["d" * 200] * 2),
    "a slash at its end": "home/",
    "dots": "one/../two/.",
    "a link": "link",
}


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch) -> Path:
    """Where relative paths begin, with a link to a folder."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "talk.json").write_text(json.dumps(CHAT))
    (tmp_path / "work.json").write_text(json.dumps(WORKLOAD))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def in_terminal(run_cli, monkeypatch) -> Callable[[Callable[[PagedChatTui], object]], None]:
    """Runs `paged-chat tui`, without a terminal and without a model, until what it shows is so."""

    def run(condition: Callable[[PagedChatTui], object]) -> None:
        async def look(app: PagedChatTui) -> None:
            async with app.run_test() as pilot:
                deadline = time.monotonic() + PATIENCE_S
                while not condition(app):
                    assert time.monotonic() < deadline, app.chat_screen.why_closed
                    await pilot.pause(0.01)

        monkeypatch.setattr("sys.stdin.isatty", lambda: True)
        monkeypatch.setattr("sys.stderr.isatty", lambda: True)
        monkeypatch.setattr(command, "ignore_signals", lambda: None)  # the tests go on after it
        monkeypatch.setattr(PagedChatTui, "run", lambda app: asyncio.run(look(app)))
        assert run_cli("tui", "--model", "no-such-model", "--engine", "own").code == 0

    return run


@pytest.mark.parametrize("is_relative", [False, True], ids=["whole", "relative"])
@pytest.mark.parametrize("path", ODD.values(), ids=ODD)
def test_an_odd_home_works(run_cli, scripted, here, monkeypatch, path, is_relative):
    if sys.platform != "linux" and not path.isprintable():
        pytest.skip("this system's names must be UTF-8")
    monkeypatch.setenv("PAGED_CHAT_HOME", path if is_relative else f"{here}/{path}")
    assert run_cli("sessions", "import", "talk.json").code == 0
    found = run_cli("sessions", "search", "herons")
    assert (found.code, found.err) == (0, "")
    assert "Where do herons sleep?" in found.out
    assert (here / path / "chats.db").is_file()
    assert run_cli("models", "list").code == 0
    assert [trouble for trouble in find_troubles(DEFAULT_MODEL, None) if trouble.is_fault] == []
    scripted.enqueue("In trees.")
    assert run_cli("ask", "Where do herons sleep?").out == "In trees.\n"


@pytest.mark.parametrize("path", ODD.values(), ids=ODD)
def test_the_terminal_opens_the_chats_of_an_odd_home(run_cli, in_terminal, here, monkeypatch, path):
    if sys.platform != "linux" and not path.isprintable():
        pytest.skip("this system's names must be UTF-8")
    monkeypatch.setenv("PAGED_CHAT_HOME", path)
    assert run_cli("sessions", "import", "talk.json").code == 0
    titles = ["Where do herons sleep?"]
    in_terminal(lambda app: (service := app.chat_screen.service) and [chat.title for chat in service.chats()] == titles)
    assert (here / path / "keymap.toml").is_file()


BAD = {
    "a file": ("file", "isn't a folder"),
    "below a file": ("file/home", "Not a directory"),
    "a link to nowhere": ("dangling", "isn't a folder"),
    "a long name": ("n" * 300, "File name too long"),
    "a long path": ("/".join(["d" * 200] * 25), "File name too long"),
}


@pytest.mark.parametrize(("path", "reason"), BAD.values(), ids=BAD)
def test_a_home_that_cannot_be_is_named(run_cli, in_terminal, here, monkeypatch, path, reason):
    (here / "file").write_text("in the way")
    (here / "dangling").symlink_to("nowhere")
    home = here / path
    monkeypatch.setenv("PAGED_CHAT_HOME", str(home))
    for command_line in (["sessions", "list"], ["sessions", "import", "talk.json"], ["web", "--port", "1"]):
        ended = run_cli(*command_line)
        assert (ended.code, ended.out) == (1, "")
        assert reason in ended.err
        assert str(home) in ended.err
        assert re.search(r": give another (one|folder) with --home$", ended.err)
    for command_line in (["models", "pull", "smollm2-135m"], ["bench", "work.json"]):
        ended = run_cli(*command_line)
        assert (ended.code, ended.out) == (1, "")
        assert str(home) in ended.err
        assert ended.err.endswith("give another folder with --home\n")
    in_terminal(lambda app: (why := app.chat_screen.why_closed) and str(home) in why and why.endswith("with --home"))
    assert run_cli("models", "list").code == 0
    [trouble] = find_troubles(DEFAULT_MODEL, None)
    assert trouble.words == f"the home folder {home} can't be made"
    assert (here / "file").read_text() == "in the way"
