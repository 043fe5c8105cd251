"""Promises: futures that somebody waits for, or has cancelled meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

Given = TypeVar("Given")
Result = TypeVar("Result")


def fulfil(promised: Future[Result], value: Result) -> None:
    """Unless nobody waits for it any more."""
    if promised.set_running_or_notify_cancel():
        promised.set_result(value)


def refuse(promised: Future[Result], error: BaseException) -> None:
    """Unless nobody waits for it any more."""
    if promised.set_running_or_notify_cancel():
        promised.set_exception(error)


def chained(given: Future[Given], begin: Callable[[Given], Future[Result]]) -> Future[Result]:
    """Ends as the future does that `begin` makes of what is given, or with what one of the three raises."""
    promised: Future[Result] = Future()

    def go_on(ended: Future[Given]) -> None:
        if (error := ended.exception()) is not None:
            refuse(promised, error)
            return
        try:
            begun = begin(ended.result())
        except BaseException as fault:
            refuse(promised, fault)
        else:
            begun.add_done_callback(pass_on)

    def pass_on(ended: Future[Result]) -> None:
        if (error := ended.exception()) is not None:
            refuse(promised, error)
        else:
            fulfil(promised, ended.result())

    given.add_done_callback(go_on)
    return promised
