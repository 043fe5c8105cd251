"""Ended from outside, the program gives the terminal back and keeps what replies have so far."""

import os
import shlex
import shutil
import signal
import sys
from pathlib import Path

import pytest

import told_command
from chat_desk import until
from paged_chat.app.store.store import Store, default_path

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")

PROGRAM = shlex.join([sys.executable, told_command.__file__, "tui"])
# A shell that says afterwards how it ended, and whether the terminal takes lines from its keyboard again.
SHELL = f'{PROGRAM}; echo "ended with $?"; stty -a | grep -ow -e "-*icanon"; exec sleep 1000'


@pytest.mark.parametrize(
    ("signals", "code"),
    [((signal.SIGTERM, signal.SIGTERM), 143), ((signal.SIGINT,), 130)],
    ids=["terminated twice", "interrupted"],
)
def test_the_terminal_is_given_back_and_the_reply_is_kept(tmux, home, signals, code):
    tmux.start("sh", "-c", SHELL.replace("'", "'\\''"))
    tmux.until(lambda screen: " held · " in screen)
    tmux.type("Tell me a story")
    tmux.keys("Enter")
    with Store(default_path()) as store:
        until(lambda: bool(replies_in(store)) and len(replies_in(store)[0].text) > 3)
        [seen] = replies_in(store)
    pid = int((home / "pid").read_text())
    for number in signals:
        os.kill(pid, number)
    tmux.until(lambda screen: f"ended with {code}\nicanon" in screen)
    assert "boat" not in tmux.screen
    with Store(default_path()) as store:
        [kept] = replies_in(store)
    assert (kept.status, kept.finish_reason) == ("stopped", "abort")
    assert told_command.STORY.startswith(kept.text)
    assert len(kept.text) >= len(seen.text)


def replies_in(store):
    return [message for chat in store.chats() for message in store.tree(chat.id) if message.role == "assistant"]


def test_stopped_and_woken_from_outside_it_goes_on_and_ends_as_always(tmux, home):
    tmux.start("sh", "-c", SHELL.replace("'", "'\\''"))
    tmux.until(lambda screen: " held · " in screen)
    pid = int((home / "pid").read_text())
    for word in ("once ", "twice ", "thrice "):
        os.kill(pid, signal.SIGSTOP)
        until(lambda: state_of(pid) == "T")
        os.kill(pid, signal.SIGCONT)
        tmux.type(word)
        tmux.until(lambda screen, word=word: word in screen)
    tmux.keys("C-q")
    tmux.until(lambda screen: "ended with 0\nicanon" in screen)


def state_of(pid):
    """The letter that the system has for what a process does."""
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]


def test_suspended_it_leaves_the_terminal_to_the_shell_and_goes_on_with_the_reply_in_the_foreground(tmux, home):
    tmux.start("bash", "--norc", "--noprofile", "-i")  # a shell that has jobs
    tmux.type(f"{PROGRAM}; echo ended with $?")
    tmux.keys("Enter")
    tmux.until(lambda screen: " held · " in screen)
    tmux.type("Tell me a story")
    tmux.keys("Enter")
    tmux.until(lambda screen: "writing, " in screen)
    pid = int((home / "pid").read_text())
    os.kill(pid, signal.SIGTSTP)
    tmux.until(lambda screen: "Stopped" in screen and "writing, " not in screen)
    tmux.type("echo the shell, $((40 + 2))")
    tmux.keys("Enter")
    tmux.until(lambda screen: "\nthe shell, 42\n" in screen)
    with Store(default_path()) as store:
        [seen] = replies_in(store)
    tmux.type("fg")
    tmux.keys("Enter")
    tmux.until(lambda screen: "Tell me a story" in screen and "writing, " in screen and "the shell" not in screen)
    with Store(default_path()) as store:
        until(lambda: len(replies_in(store)[0].text) > len(seen.text) + 3)
    tmux.type("typed since")
    tmux.until(lambda screen: "typed since" in screen)
    tmux.keys("Escape")
    tmux.until(lambda screen: "stopped, ^l goes on" in screen)
    tmux.keys("C-q")
    tmux.until(lambda screen: "Message…" not in screen and " held · " not in screen)
    tmux.type("stty -a | grep -ow -e -*icanon")
    tmux.keys("Enter")
    tmux.until(lambda screen: "\nicanon\n" in screen)
