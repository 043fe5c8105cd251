"""The threads that run compiled steps side by side with the engine's own."""

import contextlib
import os
import threading
from collections.abc import Callable
from typing import Any


class Team:
    """Helpers that wait for a step, join in, and wait again.

    A step is a compiled function that releases the interpreter lock and shares its work through counters
    (work_sharing.py): it is complete as soon as one thread has returned from it, wherever the helpers are. What they
    may still touch then are its counters, so every run brings its own.
    """

    def __init__(self, num_threads: int) -> None:
        self.num_threads = num_threads
        self._helpers = [_Helper(number) for number in range(1, num_threads)]

    def run(self, step: Callable[..., Any], *arguments: Any) -> None:
        """Runs `step(*arguments)` on the calling thread, with as much help as there is."""
        for helper in self._helpers:
            helper.join_in(step, arguments)
        step(*arguments)


class _Helper:
    def __init__(self, number: int) -> None:
        # Locked while nothing is wanted: a semaphore of Python's own takes ten times as long.
        self._idle = threading.Lock()
        self._idle.acquire()
        self._next: tuple[Callable[..., Any], tuple[Any, ...]] | None = None
        threading.Thread(target=self._serve, name=f"paged-chat kernels {number}", daemon=True).start()

    def join_in(self, step: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        # A helper that comes late finds only the newest step: the older ones are complete without it.
        self._next = (step, arguments)
        with contextlib.suppress(RuntimeError):  # it is called already, and hasn't looked yet
            self._idle.release()

    def _serve(self) -> None:
        while True:
            self._idle.acquire()
            work, self._next = self._next, None
            if work is not None:
                step, arguments = work
                step(*arguments)


_team: Team | None = None


def default_threads() -> int:
    """One for each core that this process may use; OMP_NUM_THREADS says otherwise, as it does for torch."""
    wished = os.environ.get("OMP_NUM_THREADS", "")
    if wished.isdecimal() and int(wished) > 0:
        return int(wished)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def shared_team() -> Team:
    """The process's one team, made when it is first needed."""
    global _team
    if _team is None:
        _team = Team(default_threads())
    return _team
