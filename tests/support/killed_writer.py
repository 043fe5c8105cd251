"""Writes chats in a process that is killed at a random moment, again and again.

For each line on its input it forks a writer, kills it, and writes "killed". Until then the writer says what it has
committed, a line for each commit: `turn MESSAGE_ID`, `finished MESSAGE_ID` or `chats TITLE`.
A fork costs milliseconds, a new interpreter would cost hundreds.
"""

import os
import random
import signal
import sys
import time
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

from paged_chat.app.chats import NewReply
from paged_chat.app.imported_chat import ImportedChat, ImportedMessage
from paged_chat.app.store import migrations  # noqa: F401 so that the writer doesn't spend its time with importing
from paged_chat.app.store.store import Store
from paged_chat.engine.request import SamplingParams

MAX_STEPS = 9
MAX_LAST_STEP_S = 0.01
NUM_IMPORTED = 3
NOW = datetime.now(UTC)


def question(number: int) -> str:
    return f"question {number} " + "lorem ipsum " * (number % 50)


def answer(message_id: int) -> str:
    return f"answer {message_id} " + "dolor sit amet " * (message_id % 100)


def say(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def write_on(path: Path, life: int, steps: int) -> None:
    """Every kind of write, one after the other, until the end; a byte into the pipe `steps` for each."""
    with Store(path) as store:
        os.write(steps, b".")
        chat = store.create_chat()
        below = None
        for number in count():
            turn = store.add_turn(chat.id, below, question(number), [NewReply(model=None, sampling=SamplingParams())])
            reply_id = turn.replies[0].id
            say("turn", reply_id)
            os.write(steps, b".")
            store.save_draft(reply_id, answer(reply_id)[:20], range(5))
            reply = store.finish_reply(
                reply_id,
                text=answer(reply_id),
                token_ids=range(reply_id),
                status="done",
                finish_reason="stop",
                cost=None,
            )
            say("finished", reply_id)
            os.write(steps, b".")
            below = reply.id
            title = f"import {life}.{number}"
            messages = (ImportedMessage(parent=None, role="user", text=title, created_at=NOW),)
            imported = ImportedChat(title=title, messages=messages, created_at=NOW, updated_at=NOW)
            store.import_chats([imported] * NUM_IMPORTED)
            say("chats", title)
            os.write(steps, b".")
            doomed = store.add_turn(chat.id, below, question(number), []).user_message
            assert doomed is not None
            store.delete_message(doomed.id)


def main() -> None:
    path = Path(sys.argv[1])
    moments = random.Random(int(sys.argv[2]))
    for life, _ in enumerate(sys.stdin):
        steps_seen, steps = os.pipe()
        writer = os.fork()
        if not writer:
            write_on(path, life, steps)
        # Counted in what it did, not in time alone: a busy machine lets it do as much. Some die while they open, or
        # make, the database.
        for _ in range(moments.randrange(MAX_STEPS)):
            os.read(steps_seen, 1)
        time.sleep(moments.uniform(0, MAX_LAST_STEP_S))
        os.kill(writer, signal.SIGKILL)
        os.waitpid(writer, 0)
        os.close(steps_seen)
        os.close(steps)
        say("killed")


if __name__ == "__main__":
    main()
