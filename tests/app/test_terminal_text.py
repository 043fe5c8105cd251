"""What a terminal would obey doesn't reach it."""

import io
import json

import pytest

from paged_chat.app.terminal_text import harmless, json_line, shown_on

# Clears the screen; renames the window; puts text into the clipboard; a C1 control; turns the line around; a bell.
ATTACK = "a\x1b[2Jb\x1b]0;root\x07c\x1b]52;c;cm0=\x07d\x9b31me\u202eexe.txt\x00\x08\x7f"
SHOWN = "a\ufffd[2Jb\ufffd]0;root\ufffdc\ufffd]52;c;cm0=\ufffdd\ufffd31me\ufffdexe.txt\ufffd\ufffd\ufffd"


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def test_what_a_terminal_obeys_is_shown_as_unknown_letters():
    assert harmless(ATTACK) == SHOWN
    letters = "a\tb\nc\n\u05e9\u05dc\u05d5\u05dd \u200f\U0001f469\u200d\U0001f467 e\u0301"
    assert harmless(letters) == letters


def test_a_program_gets_every_letter_and_a_terminal_the_harmless_ones():
    assert shown_on(io.StringIO(), ATTACK) == ATTACK
    assert shown_on(Terminal(), ATTACK) == SHOWN


def test_json_means_the_same_and_holds_nothing_to_obey():
    line = json_line({"text": ATTACK}, Terminal())
    assert json.loads(line) == {"text": ATTACK}
    assert harmless(line) == line
    assert json_line("é", None) == '"\\u00e9"'


def test_ask_says_to_a_terminal_what_is_harmless(run_cli, scripted, monkeypatch):
    scripted.enqueue(ATTACK)
    assert run_cli("ask", "hello").out == ATTACK + "\n"
    scripted.enqueue(ATTACK)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert run_cli("ask", "hello").out == SHOWN + "\n"


def test_an_error_names_a_hostile_file_harmlessly(run_cli, tmp_path):
    file = tmp_path / "evil\x1b[2J.json"
    file.write_text("{")
    ended = run_cli("sessions", "import", str(file))
    assert ended.code == 1
    assert "\x1b" not in ended.err.replace("\x1b[31m", "").replace("\x1b[0m", "")
    assert "evil\ufffd[2J.json" in ended.err


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_chat_is_listed_shown_and_found_harmlessly(run_cli, store, options):
    chat = store.create_chat(title=f"title {ATTACK}")
    store.add_turn(chat.id, None, f"words {ATTACK}", [])
    for command in (["list"], ["show", chat.id], ["search", "words"]):
        out = run_cli("sessions", *command, *options).out
        assert "31me" in out
        assert set("\x07\x08\x9b\x7f\u202e").isdisjoint(out)
        assert not any(sequence in out for sequence in ("\x1b[2J", "\x1b]"))
