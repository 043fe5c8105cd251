"""How `paged-chat web` ends, as a process of its own: whatever asks it to, what replies have so far is kept."""

import http.client
import json
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from typing import Any

import pytest

import told_command
from chat_desk import ChatDesk, until
from fake_engine import FakeEngine
from free_port import free_port
from paged_chat.app.api.server_record import records
from paged_chat.app.store.store import Store, default_path
from patience import PATIENCE_S


@pytest.mark.parametrize(
    "signals",
    [(signal.SIGTERM,), (signal.SIGHUP,), (signal.SIGINT, signal.SIGINT)],
    ids=["terminated", "terminal closed", "Ctrl-C twice"],
)
def test_a_reply_is_kept_as_far_as_it_has_come(home, signals):
    port = free_port()
    command = [sys.executable, told_command.__file__, "web", "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == f"paged-chat is at http://127.0.0.1:{port} (Ctrl-C ends it)\n"
            assert [found.pid for found in records()] == [process.pid]
            chat_id = asked(port, "/chats")["chat_id"]
            [reply_id] = asked(port, f"/chats/{chat_id}/send", text="Tell me a story")["reply_ids"]
            with Store(default_path()) as store:
                until(lambda: len(store.message(reply_id).text) > 3)
                seen = store.message(reply_id)
            assert seen.status == "draft"
            for number in signals:
                process.send_signal(number)
            assert process.wait(PATIENCE_S) == 0
            assert process.stderr.read() == ""
        finally:
            process.kill()
    assert records() == []
    with closing(sqlite3.connect(default_path())) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    # Started again, the chat is there, and goes on.
    with closing(ChatDesk(default_path(), FakeEngine())) as desk:
        [chat] = desk.service.chats()
        kept = desk.stored(seen)
        assert (kept.status, kept.finish_reason, kept.cost.num_generated_tokens) == (
            "stopped",
            "abort",
            len(kept.token_ids),
        )
        assert len(kept.text) >= len(seen.text)
        assert told_command.STORY.startswith(kept.text)
        desk.fake.enqueue(" The end.")
        desk.service.continue_reply(chat.id, kept.id)
        desk.finish(chat)
        assert desk.texts(chat) == ["Tell me a story", f"{kept.text} The end."]


def asked(port: int, path: str, **body: object) -> dict[str, Any]:
    """What the page's server answers."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)) as connection:
        connection.request("POST", f"/paged-chat{path}", json.dumps(body), {"Content-Type": "application/json"})
        return json.loads(connection.getresponse().read())
