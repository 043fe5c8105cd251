"""Ctrl-C while a command computes: between two steps, so that none is torn apart."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class StopFlag:
    """Says whether Ctrl-C was pressed."""

    def __init__(self) -> None:
        self.is_set = False

    def __call__(self) -> bool:
        return self.is_set


@contextmanager
def stop_on_interrupt() -> Iterator[StopFlag]:
    """Inside, the first Ctrl-C sets the flag, so that a step isn't torn apart; the second raises KeyboardInterrupt.

    Where Ctrl-C is ignored, as for a script's background jobs, it stays so.
    """
    flag = StopFlag()
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        yield flag
        return

    def handle(signum: int, frame: FrameType | None) -> None:
        if flag.is_set:
            raise KeyboardInterrupt
        flag.is_set = True

    previous = signal.signal(signal.SIGINT, handle)
    try:
        yield flag
    finally:
        signal.signal(signal.SIGINT, previous)
