"""Where servers of this person run is found in the data folder, and what dead ones left there is removed."""

import json
import os
import socket
import stat
import subprocess
import sys

from engine_server import TOKEN
from paged_chat.app.api.running_server import find_servers
from paged_chat.app.api.server_record import ServerRecord, announced, record_of, records


def test_a_server_is_found_while_it_lives_by_a_note_that_only_its_person_can_read(home):
    record = record_of("serve", "127.0.0.1", 7861)
    with announced(record):
        [path] = (home / "servers").iterdir()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert (record.pid, record.address) == (os.getpid(), "127.0.0.1:7861")
        assert records() == [record]
        assert record.token not in repr(record)
    assert list((home / "servers").iterdir()) == []
    assert records() == []


def test_each_server_has_another_token_that_nobody_guesses():
    tokens = {record_of("web", "127.0.0.1", 7860).token for _ in range(50)}
    assert len(tokens) == 50
    assert min(map(len, tokens)) >= 43, "32 bytes"


def test_an_address_for_others_is_reached_from_here_as_this_machine():
    assert record_of("web", "0.0.0.0", 7860).address == "127.0.0.1:7860"
    assert record_of("web", "::", 7860).address == "[::1]:7860"
    assert record_of("web", "::1", 7860).address == "[::1]:7860"
    assert record_of("web", "192.168.1.2", 7860).address == "192.168.1.2:7860"


ANNOUNCER = """
import sys
from paged_chat.app.api.server_record import announced, record_of
with announced(record_of("web", "127.0.0.1", int(sys.argv[1]))):
    print("ready", flush=True)
    sys.stdin.read()
"""


def test_what_a_killed_server_left_is_ignored_and_removed(home):
    with subprocess.Popen(
        [sys.executable, "-P", "-c", ANNOUNCER, "7860"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        server.stdout.readline()
        [record] = records()
        assert (record.command, record.pid) == ("web", server.pid)
        server.kill()
    assert [path.name for path in (home / "servers").iterdir()] == [f"{server.pid}.json"]
    assert records() == []
    assert list((home / "servers").iterdir()) == []


def test_a_note_of_a_process_id_that_somebody_else_has_now_is_stale(home):
    folder = home / "servers"
    folder.mkdir(parents=True)
    path = folder / f"{os.getpid()}.json"
    path.write_text(json.dumps({"command": "web", "address": "127.0.0.1:7860", "pid": os.getpid(), "token": "x"}))
    path.chmod(0o600)
    assert records() == []
    assert not path.exists()


def test_a_note_that_others_can_read_is_not_believed(home):
    record = record_of("serve", "127.0.0.1", 7861)
    with announced(record):
        [path] = (home / "servers").iterdir()
        path.chmod(0o644)
        assert records() == []
        path.chmod(0o600)
        path.write_text("{")
        assert records() == []


def test_the_newest_server_comes_first(home):
    older = ServerRecord(command="web", address="127.0.0.1:7860", pid=1, token="a")
    newer = ServerRecord(command="serve", address="127.0.0.1:7861", pid=2, token="b")
    with announced(older), announced(newer):
        os.utime(home / "servers" / "1.json", (1e9, 1e9))
        assert records() == [newer, older]


def test_a_data_folder_that_cannot_be_written_only_means_that_nobody_finds_the_server(home):
    home.parent.mkdir(exist_ok=True)
    home.write_text("a file")
    with announced(record_of("serve", "127.0.0.1", 7861)):
        assert records() == []


# A server that answers


def test_a_running_server_tells_its_model_to_who_has_the_token(server):
    with announced(server.record):
        [found] = find_servers()
    assert (found.model, found.words) == ("fake-1b", f"paged-chat serve at {server.address}")


def test_a_note_with_another_token_finds_nothing(server):
    record = ServerRecord(command="serve", address=server.address, pid=1, token=TOKEN + "x")
    with announced(record):
        assert find_servers() == []
        assert records() == [record], "it lives, and may have a reason"


def test_a_note_of_an_address_where_nobody_answers_is_removed(home):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        record = record_of("serve", "127.0.0.1", probe.getsockname()[1])
    with announced(record):
        assert find_servers() == []
        assert list((home / "servers").iterdir()) == []


def test_a_server_whose_model_failed_has_nothing_to_share(fake):
    from chat_desk import until
    from engine_server import serve_engine
    from paged_chat.engine.errors import ModelNotFound

    fake.load_error = ModelNotFound("no such model")
    server = serve_engine(fake.open)
    until(lambda: server.host.status.phase == "failed")
    with announced(server.record):
        assert find_servers() == []
    server.close()
