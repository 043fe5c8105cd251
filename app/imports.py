"""Importing the engine, and Gradio, which is most of a start, and what Ctrl-C does while something is imported."""

import gc
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache


@cache
def import_engine() -> None:
    """Imports what an engine needs, torch and Numba above all: a second, the first time."""
    # NumPy multiplies no matrices here; its library's threads would spin beside the import, waiting for some.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    with _uncollected(), ended_by_interrupt():
        from paged_chat.engine import AsyncEngine, Engine  # noqa: F401


@cache
def import_page() -> None:
    """Imports what a page needs, Gradio above all: seconds, the first time."""
    with _uncollected(), ended_by_interrupt():
        from .web.server import WebServer  # noqa: F401


@contextmanager
def _uncollected() -> Iterator[None]:
    """Leaves Python's collector out.

    300,000 objects are made that live as long as the process. It would look through all of them again and again, while
    they come, while the model loads, and at the end (docs/performance.md). So it rests meanwhile, and never looks at
    what is there by then. An engine, which comes later, is collected as anything else.
    """
    gc.disable()
    try:
        yield
    finally:
        if "triton" not in sys.modules:  # whose bindings call frozen objects leaks, on stderr, when the process ends
            gc.freeze()
        gc.enable()


@contextmanager
def ended_by_interrupt() -> Iterator[None]:
    """Lets Ctrl-C end the process at once, where it would have raised KeyboardInterrupt.

    That is a traceback while the command line itself is imported. And in an engine's imports it doesn't always get
    through: torch takes it for a NumPy that can't be imported, and fails on it later.
    """
    if (
        threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    ):
        yield
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
