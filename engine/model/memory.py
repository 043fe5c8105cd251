"""How much memory is free, and what is said where a model doesn't fit it."""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import torch

from ..errors import OutOfMemory

_CGROUP = Path("/sys/fs/cgroup")


def free_memory(device: torch.device) -> int | None:
    """Bytes that can still be used on a device; None where the system doesn't say.

    On Linux what programs and containers may still take, file caches counted as free.
    """
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    limits = [limit for limit in (_system_available(), _cgroup_available()) if limit is not None]
    return min(limits, default=None)


def check_fits(what: str, num_bytes: int, device: torch.device) -> None:
    """Raises OutOfMemory, with both numbers, before anything is allocated."""
    free = free_memory(device)
    if free is not None and num_bytes > free:
        raise OutOfMemory(
            f"{what} needs {num_bytes / 2**20:,.0f} MiB on {device}, but {free / 2**20:,.0f} MiB are free; "
            "choose a smaller model or a smaller dtype, or close other programs"
        )


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an allocation was refused, whoever made it: Python, numpy, or torch on a CPU or a GPU."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError) and "allocate memory" in str(error)  # torch's words on a CPU
    )


@contextmanager
def refusal_of_memory(what: str) -> Iterator[None]:
    """Raises OutOfMemory in the place of what an allocation raises that is refused in here."""
    try:
        yield
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        raise OutOfMemory(
            f"memory ran out while {what}: choose a smaller model or a smaller dtype, or close other programs ({error})"
        ) from error


def return_freed_memory() -> None:
    """Hands to the system what was freed here. glibc keeps it otherwise, for each thread that has had some.

    Takes milliseconds, and what is allocated next must be fetched anew: for the end of something large. Elsewhere than
    on glibc nothing happens.
    """
    with suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


def _system_available() -> int | None:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return None


def _cgroup_available() -> int | None:
    """What this container may still take (control groups, version 2); its file caches can be given up."""
    try:
        limit = (_CGROUP / "memory.max").read_text().strip()
        if limit == "max":
            return None
        used = int((_CGROUP / "memory.current").read_text())
        caches = dict(line.split() for line in (_CGROUP / "memory.stat").read_text().splitlines())
        return max(0, int(limit) - used + int(caches.get("inactive_file", 0)))
    except (OSError, ValueError):
        return None
