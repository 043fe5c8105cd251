"""How `paged-chat ask` ends in the middle of a reply, as a process of its own: what has come stays printed."""

import signal
import subprocess
import sys

import pytest

import told_command
from patience import PATIENCE_S

COMMAND = [sys.executable, told_command.__file__, "ask"]


@pytest.mark.parametrize(
    ("signals", "code"),
    [((signal.SIGHUP,), 143), ((signal.SIGINT, signal.SIGINT), 130)],
    ids=["terminal closed", "Ctrl-C twice"],
)
def test_what_has_come_stays_printed(home, signals, code):
    with subprocess.Popen([*COMMAND, "Go on"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            begun = process.stdout.read(5)  # it comes while the reply grows
            for number in signals:
                process.send_signal(number)
            told = (begun + process.stdout.read()).decode()
            assert process.wait(PATIENCE_S) == code
            assert process.stderr.read() == b""
        finally:
            process.kill()
    assert told_command.STORY.startswith(told.removesuffix("\n"))
    assert 5 <= len(told) < len(told_command.STORY)


def test_where_nobody_reads_any_more_it_ends_without_a_word(home):
    """As in `paged-chat ask first second | head -1`."""
    command = [*COMMAND, "--max-tokens", "3", "first", "second"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() != ""
            process.stdout.close()
            assert process.wait(PATIENCE_S) in (0, 1)
            assert process.stderr.read() == ""
        finally:
            process.kill()
