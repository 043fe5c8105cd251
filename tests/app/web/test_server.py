"""What serving the page costs while nobody asks for anything."""

import sys
import threading
import time
from pathlib import Path

import pytest

from page_asker import Asker


@pytest.mark.skipif(sys.platform != "linux", reason="how often a thread wakes is read from /proc")
def test_a_page_at_rest_leaves_the_processor_alone(url: str, stranger: Asker) -> None:
    """Gradio's queue looked a thousand times a second for events, a hundred times for how far they were."""
    stranger("GET", "/")  # it has begun to serve
    wakes = {thread: num_sleeps(thread) for thread in threading.enumerate() if thread.native_id}
    time.sleep(1.0)
    woken = {thread.name: num_sleeps(thread) - before for thread, before in wakes.items() if thread.is_alive()}
    assert max(woken.values()) < 40, woken  # uvicorn looks ten times a second whether it is to end


def num_sleeps(thread: threading.Thread) -> int:
    """How often it has given up its core to wait."""
    status = Path(f"/proc/self/task/{thread.native_id}/status").read_text()
    return int(status.partition("\nvoluntary_ctxt_switches:")[2].split()[0])
