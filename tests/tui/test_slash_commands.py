"""What is a command and what is a message."""

import pytest

from paged_chat.tui.actions import BY_NAME
from paged_chat.tui.slash_commands import (
    COMMANDS,
    UnknownCommand,
    completions,
    help_line,
    message_text,
    parse,
)


@pytest.mark.parametrize(
    ("text", "name", "argument"),
    [
        ("/help", "help", ""),
        ("/system Answer in one word.", "system", "Answer in one word."),
        ("/system two\nlines", "system", "two\nlines"),
        ("/TEMP 0.5", "temp", "0.5"),
        ("/temperature 0.5", "temp", "0.5"),
        ("/max_tokens 60", "max", "60"),
        ("/top-p 0.9", "top-p", "0.9"),
        ("/exit", "quit", ""),
    ],
)
def test_commands(text, name, argument):
    call = parse(text)
    assert (call.command.name, call.argument) == (name, argument)


@pytest.mark.parametrize("text", ["hello", "", "/", "//help me", "/etc/hosts is a file", "a /help", "/ 2"])
def test_messages(text):
    assert parse(text) is None


def test_a_doubled_slash_sends_one():
    assert message_text("//help me") == "/help me"
    assert message_text("help //me") == "help //me"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("/halp", "there is no command /halp, maybe /help: /help lists them"),
        ("/temprature 1", "there is no command /temprature, maybe /temperature:"),
        ("/xyzzy", "there is no command /xyzzy: /help lists them"),
        ("/help me", "/help takes nothing behind it"),
    ],
)
def test_what_can_not_be_meant_is_said(text, reason):
    with pytest.raises(UnknownCommand, match=reason):
        parse(text)


def test_completion_offers_what_begins_so():
    assert [command.name for command in completions("/te")] == ["temporary", "temp"]
    assert len(completions("/")) == len(COMMANDS)
    assert completions("/temp 0") == []
    assert completions("te") == []


def test_the_command_that_it_is_comes_first():
    """Enter takes the first one, and /temp is not /temporary."""
    assert [command.name for command in completions("/temp")] == ["temp", "temporary"]
    assert [command.name for command in completions("/n")] == ["n", "new"]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("/temp 0.5", "/temp number: Temperature: 0 takes the most likely token (0 to 100)"),
        ("/export", "/export path: Export the chat: .md or .json"),
        ("/quit", "/quit: Quit"),
        ("/hel", None),
        ("/halp", "there is no command /halp, maybe /help: /help lists them; // sends a message that begins with /"),
        ("hello", None),
        ("//help", None),
        ("/etc/hosts", None),
        ("", None),
    ],
)
def test_a_command_has_a_line_of_help_while_it_is_written(text, line):
    assert help_line(text) == line


def test_no_name_is_that_of_two_commands():
    names = [name for command in COMMANDS for name in set(command.names)]
    assert len(names) == len(set(names))


def test_every_action_of_a_command_exists():
    assert [command.name for command in COMMANDS if command.action and command.action not in BY_NAME] == []
