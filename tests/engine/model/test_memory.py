"""What is freed goes back to the system."""

import os
import platform
from pathlib import Path

import pytest

from paged_chat.engine.model.memory import return_freed_memory

MIB = 2**20


def resident_mib() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / MIB


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc is told to")
def test_what_was_freed_below_what_is_still_held_is_returned():
    pieces = [b"\1" * 65536 for _ in range(4800)]  # 300 MiB, each too small to be mapped by itself
    last = pieces.pop()
    pieces.clear()
    kept = resident_mib()
    return_freed_memory()
    assert kept - resident_mib() > 200
    assert len(last) == 65536
