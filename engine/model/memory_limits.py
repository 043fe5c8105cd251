"""How much memory this process may still take: of the machine, of its control groups, of its address space."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
CGROUPS = Path("/sys/fs/cgroup")
NO_LIMIT_BYTES = 2**60  # what version 1 of control groups says where there is none is larger


@dataclass(frozen=True, slots=True)
class _GroupFiles:
    """What a version of control groups calls its limit, its use, and the file caches in it that can be given up."""

    limit: str
    used: str
    caches: str


_VERSION_1 = _GroupFiles("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
_VERSION_2 = _GroupFiles("memory.max", "memory.current", "inactive_file")


def free_system_memory() -> int | None:
    """Bytes, the least that any limit leaves; None where the system doesn't say. Linux alone does.

    File caches count as free. A limit of the address space (`ulimit -v`) is one too: it holds for what is asked for,
    used or not.
    """
    free = [*_machine(), *_control_groups(), *_address_space()]
    return min(free, default=None)


def _machine() -> Iterator[int]:
    with suppress(OSError, ValueError, KeyError):
        yield _kibibytes(PROC / "meminfo", "MemAvailable")


def _address_space() -> Iterator[int]:
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY:
        with suppress(OSError, ValueError, KeyError):
            yield max(0, limit - _kibibytes(PROC / "self" / "status", "VmSize"))


def _control_groups() -> Iterator[int]:
    """Of the group that this process is in, and of those that hold that one: a limit on any of them counts."""
    for folder, files in _groups():
        with suppress(OSError, ValueError):
            limit = int((folder / files.limit).read_text())  # "max" is none
            if limit < NO_LIMIT_BYTES:
                used = int((folder / files.used).read_text())
                counts = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
                yield max(0, limit - used + int(counts.get(files.caches, 0)))


def _groups() -> Iterator[tuple[Path, _GroupFiles]]:
    try:
        memberships = [line.split(":", 2) for line in (PROC / "self" / "cgroup").read_text().splitlines()]
    except OSError:
        return
    for _, controllers, path in (fields for fields in memberships if len(fields) == 3):
        if controllers and "memory" not in controllers.split(","):
            continue
        root, files = (CGROUPS / "memory", _VERSION_1) if controllers else (CGROUPS, _VERSION_2)
        # In a container the path may be the host's, which isn't there: what is, up to the root, is ours.
        group = root / path.lstrip("/")
        yield from ((folder, files) for folder in (group, *group.parents) if folder.is_relative_to(root))


def _kibibytes(file: Path, field: str) -> int:
    """In bytes, the field of a file that says so many kB."""
    fields = dict(line.split(":", 1) for line in file.read_text().splitlines() if ":" in line)
    return int(fields[field].split()[0]) * 1024
