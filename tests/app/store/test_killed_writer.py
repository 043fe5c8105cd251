"""Nothing that was committed is lost when the process that writes is killed, at whatever moment.

PAGED_CHAT_TEST_KILLS says how often it is; docs/faults.md has the figures of a long run.
"""

import os
import sqlite3
import subprocess
import sys
from collections import Counter
from contextlib import closing

import killed_writer
from paged_chat.app.store.store import Store, default_path

NUM_KILLS = int(os.environ.get("PAGED_CHAT_TEST_KILLS", "100"))


def test_kills_at_random_moments_lose_no_committed_message(home):
    path = default_path()
    process = subprocess.Popen(
        [sys.executable, killed_writer.__file__, path, "1"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    num_finished, num_mid_reply = 0, 0
    for _ in range(NUM_KILLS):
        committed = one_life(process)
        if not path.exists():  # killed before it began
            continue
        with Store(path) as store:
            store.stop_orphaned_drafts()
            check_committed(store, committed)
        kinds = Counter(kind for kind, _ in committed)
        num_finished += kinds["finished"]
        num_mid_reply += kinds["turn"] - kinds["finished"]
        check_database(path)
    process.stdin.close()
    assert process.wait() == 0
    process.stdout.close()
    # The test would prove nothing if no life had been long enough to write, or if each had ended between two turns.
    assert num_finished > NUM_KILLS / 2
    assert num_mid_reply > 0
    with Store(path) as store:
        assert store.stats().num_messages >= 2 * num_finished


def one_life(process):
    """What a writer said that it had committed before it was killed."""
    process.stdin.write("\n")
    process.stdin.flush()
    said = []
    while (line := process.stdout.readline().strip()) != "killed":
        assert line, "the writer ended by itself"
        kind, _, what = line.partition(" ")
        said.append((kind, what))
    return said


def check_committed(store, committed):
    finished = {int(what) for kind, what in committed if kind == "finished"}
    for kind, what in committed:
        if kind == "chats":
            hits = [hit for hit in store.search(what) if hit.message_id is None and hit.chat.title == what]
            assert len(hits) == killed_writer.NUM_IMPORTED
            continue
        reply = store.message(int(what))
        assert store.message(reply.parent_id).text.startswith("question ")
        if reply.id in finished or reply.status == "done":
            assert (reply.text, reply.token_ids) == (killed_writer.answer(reply.id), tuple(range(reply.id)))
            assert reply.status == "done"
        else:
            assert reply.status == "stopped"
            assert killed_writer.answer(reply.id).startswith(reply.text)


def check_database(path):
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
        for index in ("title_search", "message_search"):
            connection.execute(f"INSERT INTO {index} ({index}) VALUES ('integrity-check')")
        # An import is there as a whole or not at all, committed or not.
        counts = connection.execute("SELECT count(*) FROM chats WHERE title LIKE 'import %' GROUP BY title").fetchall()
        assert {number for (number,) in counts} <= {killed_writer.NUM_IMPORTED}
