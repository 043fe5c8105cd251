"""Ctrl-C, or the system's wish to end, while a command computes: between two steps, so that none is torn apart."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class StopFlag:
    """Says whether Ctrl-C was pressed, or whether the process is to end (SIGTERM)."""

    def __init__(self) -> None:
        self.is_set = False
        self.must_end = False

    def __call__(self) -> bool:
        return self.is_set


@contextmanager
def stop_on_interrupt() -> Iterator[StopFlag]:
    """Inside, the first Ctrl-C sets the flag, so that a step isn't torn apart; the second raises KeyboardInterrupt.

    Where Ctrl-C is ignored, as for a script's background jobs, it stays so. SIGTERM sets it too, and `must_end`.
    """
    flag = StopFlag()

    def handle(signum: int, frame: FrameType | None) -> None:
        if signum == signal.SIGTERM:
            flag.must_end = True
        elif flag.is_set:
            raise KeyboardInterrupt
        flag.is_set = True

    caught = [each for each in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(each) is not signal.SIG_IGN]
    previous = {each: signal.signal(each, handle) for each in caught}
    try:
        yield flag
    finally:
        for each, handler in previous.items():
            signal.signal(each, handler)
