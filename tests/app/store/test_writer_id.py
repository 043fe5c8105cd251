"""Which process wrote a draft, and whether it still runs."""

import os
import subprocess
import sys

import pytest

from paged_chat.app.store import writer_id
from paged_chat.app.store.writer_id import is_alive, new_writer_id


def test_this_process_lives():
    one, another = new_writer_id(), new_writer_id()
    assert one != another
    assert is_alive(one)
    assert is_alive(another)


def test_a_process_that_ended_is_dead_before_its_parent_has_looked():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    started = writer_id._started(child.pid)
    name = f"{child.pid}:{started}:0"
    assert is_alive(name)
    child.stdin.close()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # ended, but still in the table of processes
    assert not is_alive(name)
    child.wait()
    assert not is_alive(name)


def test_a_later_process_with_the_same_number_is_another_one():
    pid, started, own = new_writer_id().split(":")
    assert not is_alive(f"{pid}:{started}0:{own}")


@pytest.mark.skipif(not os.path.exists("/bin/ps"), reason="needs ps")
def test_without_proc_the_process_table_is_asked(monkeypatch, tmp_path):
    monkeypatch.setattr(writer_id, "_PROC", tmp_path)
    name = new_writer_id()
    assert is_alive(name)
    assert name.count(":") == 2
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    dead = f"{child.pid}:{writer_id._started(child.pid)}:0"
    assert is_alive(dead)
    child.communicate()
    assert not is_alive(dead)
