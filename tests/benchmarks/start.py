"""How long a command takes to its first character, and how much of the processor; several commands in turns.

    python tests/benchmarks/start.py [--rounds 5] COMMAND ...

    python tests/benchmarks/start.py "paged-chat ask Hi --max-tokens 1" "old/.venv/bin/paged-chat ask Hi --max-tokens 1"

Each command runs once before, so that what is kept on the disk is there, Python's compiled modules included, whatever
the environment says of those. Wall times mean something where other
programs used little of the machine meanwhile, which is told; processor times also elsewhere.
"""

import argparse
import os
import shlex
import statistics
import subprocess
import sys
import time
from dataclasses import astuple, dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Start:
    """One run of a command."""

    first_s: float  # to the first character on standard output
    whole_s: float
    processor_s: float
    peak_rss_mib: float
    others_cores: float


def run(command: str) -> Start:
    busy_s, started = machine_busy_s(), time.perf_counter()
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with subprocess.Popen(shlex.split(command), stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        process.stdout.read(1)
        first_s = time.perf_counter() - started
        process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    whole_s = time.perf_counter() - started
    if process.returncode:
        sys.exit(f"{command} ended with {process.returncode}")
    processor_s = usage.ru_utime + usage.ru_stime
    others = (machine_busy_s() - busy_s - processor_s) / whole_s
    return Start(first_s, whole_s, processor_s, usage.ru_maxrss / 1024, max(0.0, others))


def machine_busy_s() -> float:
    """CPU seconds that all programs have used since the start of the machine."""
    ticks = [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
    idle, waiting = ticks[3], ticks[4]
    return (sum(ticks) - idle - waiting) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("commands", nargs="+", metavar="COMMAND")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    starts: dict[str, list[Start]] = {command: [] for command in args.commands}
    for command in starts:
        run(command)
    for number in range(args.rounds):
        # To and fro, so that none always comes after the same one.
        for command in list(starts)[:: -1 if number % 2 else 1]:
            starts[command].append(run(command))
    for command, runs in starts.items():
        first_s, whole_s, processor_s, rss, others = map(statistics.median, zip(*map(astuple, runs), strict=True))
        print(f"{command}\n  first character {first_s:.2f} s ({min(run.first_s for run in runs):.2f} to "
              f"{max(run.first_s for run in runs):.2f}), whole {whole_s:.2f} s, processor {processor_s:.2f} s, "
              f"{rss:.0f} MiB; others used {others:.2f} cores")  # fmt: skip


if __name__ == "__main__":
    main()
