"""Who writes a reply: a store of a process. What a dead process left behind can so be told from work in progress."""

import os
import subprocess
import uuid
from pathlib import Path

_PROC = Path("/proc")


def new_writer_id() -> str:
    """A name for a store of this process: `pid:when the process started:something of its own`."""
    pid = os.getpid()
    return f"{pid}:{_started(pid)}:{uuid.uuid4().hex[:8]}"


def is_alive(writer_id: str) -> bool:
    """Whether the process that a writer belongs to still runs; a later process with its number isn't it."""
    pid, started, _ = writer_id.split(":", 2)
    return _started(int(pid)) == started


def _started(pid: int) -> str | None:
    """When a process started, in whatever unit the system keeps; None if it doesn't run."""
    if not (_PROC / "self").exists():
        shown = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
        return shown.stdout.strip().replace(":", ".") or None
    try:
        stat = (_PROC / str(pid) / "stat").read_text()
    except OSError:
        return None
    # The second field, the program's name, is in parentheses and may hold anything; proc(5) numbers the fields from 1.
    state, *fields = stat.rpartition(")")[2].split()
    # A zombie is dead; only its parent hasn't looked yet. Ticks count from the machine's start, so that is told too.
    boot_id = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    return None if state in "ZX" else f"{boot_id}/{fields[22 - 4]}"
