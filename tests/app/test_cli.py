"""The command line itself: finding commands, help, version, exit codes."""

import io
import os
import re
import sys
from importlib.metadata import version

import pytest

from paged_chat.app import cli
from paged_chat.engine.errors import ModelNotFound

COMMANDS = ("ask", "bench", "doctor", "models", "serve", "sessions")


def test_help_lists_each_command_with_its_summary(run_cli):
    ended = run_cli("--help")
    assert ended.code == 0
    for name in COMMANDS:
        [line] = [line for line in ended.out.splitlines() if line.strip().startswith(f"{name} ")]
        assert len(line.split()) > 3, f"{name} has no summary"


@pytest.mark.parametrize("name", COMMANDS)
def test_a_summary_is_the_first_line_of_the_commands_own_help(run_cli, name):
    summary = cli.summary_of(cli.command_entry_points()[name])
    assert " ".join(run_cli(name, "--help").out.split()).find(summary) > 0


def test_without_a_command_the_help_is_shown(run_cli):
    ended = run_cli()
    assert ended.code == 2
    assert "Commands:" in ended.out + ended.err


def test_the_version_is_the_packages(run_cli):
    assert run_cli("--version").out == f"paged-chat {version('paged-chat')}\n"


def test_an_unknown_command_suggests_the_nearest(run_cli):
    ended = run_cli("bnech")
    assert ended.code == 2
    assert "No such command 'bnech'. Did you mean 'bench'?" in ended.err


def test_an_unknown_option_is_a_usage_error(run_cli):
    ended = run_cli("ask", "--temprature", "1", "hello")
    assert ended.code == 2
    assert "No such option: --temprature" in ended.err


@pytest.mark.parametrize(
    ("line", "place"),
    [
        ("sessions list --home X", "--home goes before the command: paged-chat --home PATH sessions list"),
        ("ask hello --home X", "--home goes before the command: paged-chat --home PATH ask"),
        ("--model X ask hello", "--model goes behind the command: paged-chat ask --model MODEL"),
        ("-n 3 ask hello", "-n goes behind the command: paged-chat ask -n COUNT"),
        ("--json sessions list", "--json goes behind the command: paged-chat sessions list --json"),
        ("sessions --json list", "--json goes behind the command: paged-chat sessions list --json"),
        ("--json", "No such option: --json (Possible options: --version)"),
    ],
)
def test_an_option_in_another_ones_place_is_told_where_it_goes(run_cli, line, place):
    ended = run_cli(*line.split())
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.endswith(f"\n\nError: {place}\n")


def test_home_is_where_the_engine_looks(run_cli, scripted, tmp_path, monkeypatch):
    scripted.enqueue("yes")
    run_cli("--home", str(tmp_path / "elsewhere"), "ask", "hello")
    assert os.environ["PAGED_CHAT_HOME"] == str(tmp_path / "elsewhere")


def test_an_error_is_one_sentence_on_stderr(run_cli, scripted):
    def fail():
        raise ModelNotFound("there is no model 'x'; `paged-chat models list` shows those there are")

    scripted.before_step = fail
    scripted.enqueue("never said")
    ended = run_cli("ask", "hello")
    assert ended.code == 1
    assert ended.err == "Error: there is no model 'x'; `paged-chat models list` shows those there are\n"
    assert "Traceback" not in ended.out + ended.err


@pytest.mark.parametrize(
    "fault",
    [
        AssertionError("released a block nobody holds"),
        OSError("Could not find/load shared object file 'libllvmlite.so'"),  # where there is no memory for it
    ],
)
def test_a_fault_of_ours_keeps_its_traceback(scripted, monkeypatch, fault):
    def fail():
        raise fault

    scripted.before_step = fail
    monkeypatch.setattr("sys.argv", ["paged-chat", "ask", "hello"])
    with pytest.raises(type(fault), match=re.escape(str(fault))):
        cli.main()


def test_the_list_of_commands_is_not_cut_short(run_cli):
    assert "..." not in run_cli("--help").out.partition("Commands:")[2]


def test_an_empty_home_is_refused(run_cli):
    ended = run_cli("--home", "", "sessions", "list")
    assert ended.code == 2
    assert "--home must name a folder, not ''" in ended.err


def test_a_locale_without_letters_shows_question_marks(scripted, monkeypatch):
    """Python's own choice there, with neither UTF-8 mode nor a locale in its place."""
    written = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(written, encoding="ascii", errors="surrogateescape"))
    monkeypatch.setattr("sys.argv", ["paged-chat", "ask", "hello"])
    scripted.enqueue("Pâris 👋")
    with pytest.raises(SystemExit):
        cli.main()
    sys.stdout.flush()
    assert written.getvalue() == b"P?ris ?\n"


def test_a_home_of_nobody_is_a_folder_of_that_name(run_cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run_cli("--home", "~nobody-of-that-name/chats", "sessions", "list").code == 0
    assert (tmp_path / "~nobody-of-that-name" / "chats" / "chats.db").exists()
