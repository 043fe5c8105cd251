"""How much memory is free, where something allows less than the machine has."""

import subprocess
import sys
from pathlib import Path

import pytest

from paged_chat.engine.model import memory_limits
from paged_chat.engine.model.memory_limits import free_system_memory

MIB = 2**20


class Machine:
    """A machine with 8,000 MiB free, and what its files say of control groups."""

    def __init__(self, folder: Path) -> None:
        self.proc = folder / "proc"
        self.groups = folder / "groups"
        (self.proc / "self").mkdir(parents=True)
        (self.proc / "meminfo").write_text(f"MemTotal: 9000000 kB\nMemAvailable: {8000 * 1024} kB\n")

    def has_membership(self, *lines: str) -> None:
        (self.proc / "self" / "cgroup").write_text("".join(f"{line}\n" for line in lines))

    def has_group(self, path: str, limit: str, used_mib: int, cache_mib: int, *, version: int = 2) -> None:
        names = ("memory.max", "memory.current", "inactive_file")
        if version == 1:
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        folder = self.groups / path
        folder.mkdir(parents=True, exist_ok=True)
        (folder / names[0]).write_text(f"{limit}\n")
        (folder / names[1]).write_text(f"{used_mib * MIB}\n")
        (folder / "memory.stat").write_text(f"anon 7\n{names[2]} {cache_mib * MIB}\n")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine(tmp_path)
    monkeypatch.setattr(memory_limits, "PROC", machine.proc)
    monkeypatch.setattr(memory_limits, "CGROUPS", machine.groups)
    return machine


def free_mib():
    free = free_system_memory()
    return None if free is None else free / MIB


def test_without_limits_it_is_what_the_machine_has(machine):
    assert free_mib() == 8000
    machine.has_membership("0::/user.slice")
    machine.has_group("user.slice", "max", 100, 0)
    assert free_mib() == 8000


def test_a_groups_limit_counts_and_its_file_caches_are_free(machine):
    machine.has_membership("0::/user.slice/chat.scope")
    machine.has_group("user.slice/chat.scope", str(1000 * MIB), 700, 200)
    assert free_mib() == 500


def test_the_tightest_of_the_groups_around_it_counts(machine):
    machine.has_membership("0::/user.slice/chat.scope")
    machine.has_group("user.slice/chat.scope", str(4000 * MIB), 0, 0)
    machine.has_group("user.slice", str(2000 * MIB), 1700, 0)
    machine.has_group("other.slice", str(1 * MIB), 0, 0)
    assert free_mib() == 300


def test_a_container_that_sees_only_its_own_group(machine):
    machine.has_membership("0::/docker/of-the-host")
    machine.has_group(".", str(600 * MIB), 100, 0)
    assert free_mib() == 500


def test_control_groups_of_version_1(machine):
    machine.has_membership("4:memory:/docker/1f", "3:cpuset:/docker/1f", "0::/")
    machine.has_group("memory/docker/1f", str(900 * MIB), 500, 100, version=1)
    machine.has_group("memory", str(2**63 - 4096), 5000, 0, version=1)  # no limit
    assert free_mib() == 500


def test_more_than_the_limit_in_use_leaves_nothing(machine):
    machine.has_membership("0::/")
    machine.has_group(".", str(100 * MIB), 200, 0)
    assert free_mib() == 0


def test_a_system_that_says_nothing(machine):
    (machine.proc / "meminfo").unlink()
    assert free_mib() is None


LIMITED = """
import resource
from paged_chat.engine.model.memory_limits import free_system_memory
resource.setrlimit(resource.RLIMIT_AS, (2**30, resource.RLIM_INFINITY))
print(free_system_memory())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says how much a process has")
def test_a_limit_of_the_address_space_counts():
    done = subprocess.run([sys.executable, "-P", "-c", LIMITED], capture_output=True, text=True, check=True)
    assert 0 < int(done.stdout) < 2**30
