"""What commonly goes wrong on a machine: each trouble is found, and its remedy said."""

import shutil
import socket
import sqlite3
import subprocess
import sys
from collections import namedtuple
from contextlib import closing

import pytest

from paged_chat.app import troubles
from paged_chat.app.api.binding import AddressTaken
from paged_chat.app.api.taken_port import check_reachable
from paged_chat.app.store.database import SCHEMA_VERSION
from paged_chat.app.store.store import Store, default_path
from paged_chat.app.troubles import (
    Trouble,
    database_troubles,
    find_troubles,
    model_troubles,
    processor_troubles,
    server_troubles,
)
from paged_chat.engine.hardware import Device
from paged_chat.engine.model import catalog
from paged_chat.kernels.cpu import simd
from tiny_gguf import build as build_gguf

CPU = Device(name="cpu", description="a processor", free_bytes=8 * 2**30)
DEFAULT = "smollm2-135m"
Disk = namedtuple("Disk", "total used free")


@pytest.fixture(autouse=True)
def ports_of_nobody(monkeypatch):
    """Ports that nothing on this machine takes meanwhile, in the place of the default ones."""
    with closing(socket.socket()) as one, closing(socket.socket()) as other:
        one.bind(("127.0.0.1", 0))
        other.bind(("127.0.0.1", 0))
        ports = one.getsockname()[1], other.getsockname()[1]
    monkeypatch.setattr(troubles, "DEFAULT_PORTS", dict(zip(("web", "serve"), ports, strict=True)))
    return ports


@pytest.fixture
def small_file(tmp_path):
    return build_gguf("llama", tmp_path / "small.gguf")


def test_a_machine_without_troubles_has_none(home, small_file):
    with closing(Store(default_path())):
        pass
    assert list(find_troubles(str(small_file), CPU)) == []


@pytest.mark.skipif(sys.platform != "linux", reason="needs a folder that not even root can write to")
def test_a_home_that_cannot_be_written_to(monkeypatch):
    monkeypatch.setenv("PAGED_CHAT_HOME", "/proc")
    [trouble] = find_troubles(DEFAULT, CPU)
    assert trouble == Trouble(
        "the home folder /proc can't be written to",
        "name another one with --home or PAGED_CHAT_HOME, or change the rights to it",
        is_fault=True,
    )


def test_chats_that_are_damaged(home):
    home.mkdir()
    default_path().write_bytes(b"no database at all, but of more than 16 bytes")
    [trouble] = database_troubles()
    assert trouble.is_fault
    assert trouble.words.startswith(f"{default_path()} is damaged or isn't a database")
    assert trouble.remedy == "put a copy of yours in its place, or move it away to start afresh"


def test_chats_with_a_damaged_page_behind_a_good_beginning(home):
    with closing(Store(default_path())) as store:
        for title in ("Lisbon", "Museum"):
            store.create_chat(title=title)
    whole = default_path().read_bytes()
    half = len(whole) // 2
    default_path().write_bytes(whole[:half] + b"\xff" * (len(whole) - half))
    [trouble] = database_troubles()
    assert trouble.is_fault
    assert trouble.words.startswith(f"{default_path()} is damaged")
    assert trouble.remedy == "put a copy of yours in its place, or move it away to start afresh"


def test_chats_of_a_newer_version(home):
    with closing(Store(default_path())):
        pass
    with closing(sqlite3.connect(default_path())) as database, database:
        database.execute(
            "INSERT INTO _sqlite_migrations (migration_set, name, applied_at) VALUES ('paged-chat', 'm999_x', '2040')"
        )
    [trouble] = database_troubles()
    assert trouble == Trouble(
        f"{default_path()} was written by a newer version of paged-chat: its schema is 999, this version knows "
        f"{SCHEMA_VERSION}; nothing was changed",
        "update paged-chat, or give another folder with --home",
        is_fault=True,
    )


def test_a_folder_in_the_place_of_the_chats(home):
    default_path().mkdir(parents=True)
    [trouble] = database_troubles()
    assert trouble == Trouble(
        f"the chats in {default_path()} can't be reached (Is a directory)",
        "give another folder with --home",
        is_fault=True,
    )


def test_little_memory(small_file, home):
    size = small_file.stat().st_size
    free = size + troubles.PROGRAM_BYTES + 10 * 2**20
    [trouble] = model_troubles(str(small_file), Device(name="cpu", description="", free_bytes=free), home.parent)
    assert not trouble.is_fault  # it runs, with few blocks
    assert trouble.words.startswith(f"{free / 1e6:,.0f} MB of memory are free on cpu, and {small_file} takes about 1,")
    assert trouble.remedy == ("close other programs, choose a smaller model, or keep fewer blocks with --num-blocks")
    [trouble] = model_troubles(str(small_file), Device(name="cpu", description="", free_bytes=size), home.parent)
    assert trouble.is_fault


def test_too_little_disk_to_fetch_the_model(home, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: Disk(10**12, 10**12, 200 * 10**6))
    [trouble] = model_troubles(DEFAULT, CPU, home)
    assert trouble == Trouble(
        f"only 200 MB are free on the disk of {home}, and fetching {DEFAULT} takes 284 MB",
        "make room, or set PAGED_CHAT_HOME to a folder on a larger disk",
        is_fault=True,
    )


@pytest.mark.parametrize(("free_mb", "is_fault"), [(200, False), (1, True)])
def test_little_disk_for_chats(home, monkeypatch, small_file, free_mb, is_fault):
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: Disk(10**12, 10**12, free_mb * 10**6))
    [trouble] = model_troubles(str(small_file), CPU, home)
    assert trouble == Trouble(
        f"only {free_mb} MB are free on the disk of {home}",
        "make room, or chats can't be saved soon; `paged-chat models rm` removes a model",
        is_fault=is_fault,
    )


def test_a_model_file_that_was_cut_short(small_file, home):
    small_file.write_bytes(small_file.read_bytes()[:-100])
    [trouble] = model_troubles(str(small_file), CPU, home.parent)
    assert trouble.is_fault
    assert trouble.words.startswith(f"{small_file} isn't a sound GGUF file: ")
    assert trouble.remedy == "fetch the file again, or choose another model with --model"


def test_a_sound_model_of_a_kind_that_is_not_run(tmp_path, home):
    (tmp_path / "config.json").write_text('{"model_type": "t5"}')
    [trouble] = model_troubles(str(tmp_path), CPU, home.parent)
    assert trouble.is_fault
    assert "t5" in trouble.words
    assert trouble.remedy == "choose another model with --model"


def test_a_fetched_model_that_was_changed(small_file, home, monkeypatch):
    """Of the right size and a sound GGUF file, but not the one that was fetched."""
    entry = catalog.CATALOG[0]
    entry.path.parent.mkdir(parents=True)
    shutil.copy(small_file, entry.path)
    monkeypatch.setattr(type(entry), "is_here", property(lambda self: True))
    [trouble] = model_troubles(DEFAULT, CPU, home)
    assert trouble == Trouble(
        f"{entry.path} has been changed: its checksum is another one",
        f"`paged-chat models rm {DEFAULT}`, then `paged-chat models pull {DEFAULT}` fetch it anew",
        is_fault=True,
    )


def test_a_name_of_no_model(home):
    [trouble] = model_troubles("smolm2", CPU, home.parent)
    assert trouble.is_fault
    assert trouble.words.startswith("there is no model 'smolm2'")
    assert trouble.remedy == "`paged-chat models list` shows the names"


def test_a_port_that_another_program_has(ports_of_nobody):
    web, _ = ports_of_nobody
    with socket.socket() as other:
        other.bind(("127.0.0.1", web))
        other.listen()
        [trouble] = server_troubles()
    assert not trouble.is_fault  # --port chooses another one
    assert trouble.words == f"another program has port {web} of 127.0.0.1, which `paged-chat web` takes by default"
    assert trouble.remedy.startswith("start it with `paged-chat web --port ")
    assert trouble.remedy != f"start it with `paged-chat web --port {web}`"


RUNNING = """
import sys
from paged_chat.app.api.server_record import announced, record_of
with announced(record_of("web", "127.0.0.1", int(sys.argv[1]))):
    print("there", flush=True)
    sys.stdin.read()
"""


def test_another_instance(ports_of_nobody):
    web, _ = ports_of_nobody
    command = [sys.executable, "-P", "-c", RUNNING, str(web)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "there\n"
        [trouble] = server_troubles()
        with socket.socket() as theirs:
            theirs.bind(("127.0.0.1", web))
            theirs.listen()
            with pytest.raises(AddressTaken) as taken:  # what a second `web` or `serve` says
                check_reachable("127.0.0.1", web, has_accounts=False)
        other.communicate("")
    assert trouble.words == f"`paged-chat web` of yours runs at 127.0.0.1:{web} (process {other.pid})"
    assert str(taken.value).startswith(f"{trouble.words} already: open http://127.0.0.1:{web}, or share its engine")
    assert trouble.remedy.startswith(
        f"open http://127.0.0.1:{web}, or share its engine with `paged-chat tui --engine shared`; a second one needs"
    )


def test_a_processor_without_wide_vectors(monkeypatch):
    monkeypatch.setattr(simd, "FEATURES", {"sse2": True, "avx": True})
    [trouble] = processor_troubles()
    assert not trouble.is_fault
    assert trouble.words == "this processor has neither AVX2 nor AVX-512 nor NEON, so replies come slowly"
    assert "a small model" in trouble.remedy


def test_no_folder_for_compiled_kernels(monkeypatch, home):
    monkeypatch.setattr(troubles, "folder_of_numba", lambda: None)
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    [trouble] = processor_troubles()
    assert trouble.words == (
        "Numba can keep compiled kernels nowhere: the program's folder and the user's cache can't be written"
    )
    assert trouble.remedy == (
        f"set NUMBA_CACHE_DIR to a folder that can; until then {home / 'cache' / 'kernels'} serves"
    )
