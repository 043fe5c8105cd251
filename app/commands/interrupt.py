"""Ctrl-C, or the system's wish to end: it ends no process in the middle of a step, or before replies are saved."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_ENDS = (signal.SIGINT, signal.SIGHUP, signal.SIGTERM)


class StopFlag:
    """Says whether Ctrl-C was pressed, or whether the process is to end (SIGTERM, SIGHUP)."""

    def __init__(self) -> None:
        self.is_set = False
        self.must_end = False

    def __call__(self) -> bool:
        return self.is_set


@contextmanager
def stop_on_interrupt() -> Iterator[StopFlag]:
    """Inside, the first Ctrl-C sets the flag, so that a step isn't torn apart; the second raises KeyboardInterrupt.

    Where Ctrl-C is ignored, as for a script's background jobs, it stays so. SIGTERM sets it too, and `must_end`, and so
    does SIGHUP, which a closed terminal sends unless nohup keeps it away.
    """
    flag = StopFlag()

    def handle(signum: int, frame: FrameType | None) -> None:
        if signum != signal.SIGINT:
            flag.must_end = True
        elif flag.is_set:
            raise KeyboardInterrupt
        flag.is_set = True

    caught = [each for each in _ENDS if signal.getsignal(each) is not signal.SIG_IGN]
    previous = {each: signal.signal(each, handle) for each in caught}
    try:
        yield flag
    finally:
        for each, handler in previous.items():
            signal.signal(each, handler)


def end_on_signal() -> threading.Event:
    """Set by Ctrl-C, when the terminal is closed, or when the system asks the process to end.

    What is ignored stays so: Ctrl-C for a script's background jobs, the terminal's end under nohup.
    """
    ended = threading.Event()

    def end(*_: object) -> None:
        ignore_signals()
        ended.set()

    for number in _ENDS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, end)
    return ended


def ignore_signals() -> None:
    """For a process that is ending: it saves what replies have so far, and no second wish hurries it."""
    for number in _ENDS:
        # No SIG_IGN: Python would complain of one that is on its way already.
        signal.signal(number, _do_nothing)


def _do_nothing(signum: int, frame: FrameType | None) -> None:
    pass


def wait_for(ended: threading.Event) -> None:
    while not ended.wait(1.0):  # a wait without a limit couldn't be interrupted everywhere
        pass
