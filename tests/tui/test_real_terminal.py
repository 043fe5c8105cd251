"""The program in a real terminal (tmux): started, typed into, resized, hung up. The model is a tiny one."""

import contextlib
import os
import re
import shutil
import signal
import sqlite3
import sys
import time
from pathlib import Path

import pytest

from patience import PATIENCE_S

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")

FIRST_FRAME_S = 1.0


@pytest.fixture
def prepared_model(home: Path, default_model_path: Path) -> Path:
    """The default model's file; what was prepared from it for all tests is found from an empty home too."""
    home.mkdir()
    (home / "models").symlink_to(default_model_path.parent.parent)
    return default_model_path


def paged_chat(home: Path, model: Path | str) -> list[str]:
    program = Path(sys.executable).parent / "paged-chat"
    return [str(program), "--home", str(home), "tui", "--model", str(model)]


def messages_in(home: Path) -> list[tuple[str, str, str]]:
    """(role, status, text) of what is stored, oldest first."""
    with contextlib.closing(sqlite3.connect(home / "chats.db")) as db:
        return db.execute("SELECT role, status, text FROM messages ORDER BY id").fetchall()


@pytest.mark.default_model
def test_start_type_stream_stop_resize_quit(tmux, home, prepared_model):
    tmux.start(*paged_chat(home, prepared_model))
    tmux.until(lambda screen: "Message…" in screen)
    tmux.until(lambda screen: " held · " in screen)
    tmux.type("/temp 100")  # so hot that nearly any token may follow: no reply ends by itself soon
    tmux.keys("Enter")
    tmux.type("Count from one to two hundred in words.")
    tmux.keys("Enter")
    tmux.until(lambda screen: "writing, " in screen)
    assert "you  Count from one to two hundred in words." in tmux.screen
    tmux.resize(60, 20)
    tmux.until(lambda screen: "Cache" not in screen and "writing, " in screen)
    tmux.keys("Escape")
    tmux.until(lambda screen: "stopped, ^l goes on" in " ".join(screen.split()))
    assert max(len(line) for line in tmux.screen.splitlines()) <= 60
    tmux.keys("C-q")
    tmux.until(lambda _: not tmux.is_running)
    [(_, _, question), (_, status, reply)] = messages_in(home)
    assert (question, status) == ("Count from one to two hundred in words.", "stopped")
    assert len(reply) > 10


@pytest.mark.default_model
def test_closing_the_terminal_keeps_what_was_written(tmux, home, prepared_model):
    tmux.start(*paged_chat(home, prepared_model))
    tmux.until(lambda screen: " held · " in screen)
    tmux.type("Write a very long story about a sailing boat, a thousand words at least.")
    tmux.keys("Enter")
    tmux.until(lambda screen: re.search(r"writing, \d\d", screen))
    tmux.end()
    deadline = time.monotonic() + PATIENCE_S
    while messages_in(home)[-1][1] == "draft":
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert messages_in(home)[-1][1] == "stopped"
    assert len(messages_in(home)[-1][2]) > 5


@pytest.mark.default_model
def test_a_killed_program_shows_its_draft_as_stopped_at_the_next_start(tmux, home, prepared_model):
    tmux.start(*paged_chat(home, prepared_model))
    tmux.until(lambda screen: " held · " in screen)
    tmux.type("Write a very long story about a sailing boat, a thousand words at least.")
    tmux.keys("Enter")
    tmux.until(lambda _: any(role == "assistant" and len(text) > 20 for role, _, text in messages_in(home)))
    os.kill(tmux.pid, signal.SIGKILL)
    tmux.until(lambda _: not tmux.is_running)
    [_, (_, status, draft)] = messages_in(home)
    assert status == "draft"
    tmux.start(*paged_chat(home, "/nowhere/model.gguf"))
    tmux.until(lambda screen: "Write a very long" in screen)  # in the list
    tmux.keys("C-PageDown")
    shown = " ".join(draft.split()[:3])
    tmux.until(lambda screen: shown in screen and "stopped, ^l goes on" in " ".join(screen.split()))
    assert [message[1:] for message in messages_in(home)][1:] == [("stopped", draft)]
    tmux.keys("C-q")
    tmux.until(lambda _: not tmux.is_running)


def test_the_first_frame_comes_before_the_model(tmux, home):
    """Printed rather than asserted to the second: a busy machine stretches it."""
    tmux.start(*paged_chat(home, "/nowhere/model.gguf"))
    took_s = tmux.until(lambda screen: "Message…" in screen)
    print(f"first frame: {took_s:.2f} s, wanted under {FIRST_FRAME_S} s on a quiet machine")
    tmux.until(lambda screen: "didn't load" in screen)
    tmux.keys("C-q")
    tmux.until(lambda _: not tmux.is_running)


def test_an_editor_writes_into_the_prompt(tmux, home, tmp_path, monkeypatch):
    editor = tmp_path / "editor.sh"
    editor.write_text('#!/bin/sh\nprintf "%s, and more\\n" "$(cat "$1")" > "$1"\n')
    editor.chmod(0o700)
    monkeypatch.setenv("EDITOR", str(editor))
    monkeypatch.delenv("VISUAL", raising=False)
    tmux.start(*paged_chat(home, "/nowhere/model.gguf"))
    tmux.until(lambda screen: "Message…" in screen)
    tmux.type("begun")
    tmux.until(lambda screen: "begun" in screen)
    tmux.keys("C-g")
    tmux.until(lambda screen: "begun, and more" in screen)
    tmux.keys("C-q")
    tmux.until(lambda _: not tmux.is_running)


def test_it_is_understood_without_colour(tmux, home, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    tmux.start(*paged_chat(home, "/nowhere/model.gguf"), width=60, height=20)
    tmux.until(lambda screen: "didn't load" in screen)
    assert "paged-chat  New chat" in tmux.screen
    tmux.keys("C-k")
    tmux.until(lambda screen: "Cache" in screen and "no model yet" in screen)
    tmux.keys("C-q")
    tmux.until(lambda _: not tmux.is_running)
