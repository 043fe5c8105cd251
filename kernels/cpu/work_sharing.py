"""How threads share the work of one step without waiting for each other's arrival.

A step is a fixed list of stages; a stage is a number of items that don't depend on each other. A thread claims items
until none is left, then waits until those claimed by others are done. So a thread that the system has taken off its
core holds up only the one item it had claimed: the others do the rest, where a barrier would wait for it.
"""

import sys
from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from .simd import FEATURES, I32, I64, call, compiled

DONE = 8  # place in a stage's row of what is done; what is claimed stands at 0, a cache line before it
ROW = 16
SPINS_BEFORE_YIELD = 4000  # about 50 microseconds: longer than most stages, shorter than a turn of the scheduler
_MAY_YIELD = sys.platform != "win32"


def new_counters(num_stages: int) -> NDArray[np.int64]:  # [num_stages, ROW]
    """All stages of a step, nothing claimed."""
    return np.zeros((num_stages, ROW), dtype=np.int64)


@intrinsic
def _add(typing_context: Any, address: Any, number: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], I64.as_pointer())
        return builder.atomic_rmw("add", pointer, arguments[1], "seq_cst")

    return types.int64(types.uint64, types.int64), generate


@intrinsic
def _read(typing_context: Any, address: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load_atomic(builder.inttoptr(arguments[0], I64.as_pointer()), "acquire", 8)

    return types.int64(types.uint64), generate


@intrinsic
def _pause(typing_context: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if FEATURES.get("sse2"):
            from llvmlite import ir

            call(builder, "llvm.x86.sse2.pause", ir.VoidType())
        return context.get_dummy_value()

    return types.void(), generate


@intrinsic
def _yield_core(typing_context: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if _MAY_YIELD:
            call(builder, "sched_yield", I32)
        return context.get_dummy_value()

    return types.void(), generate


@compiled()
def _finish(done, num_done, num_items):  # type: ignore[no-untyped-def]
    """Says how many items this thread has done and waits for the others'."""
    if num_done:
        _add(done, num_done)
    spins = 0
    while _read(done) < num_items:
        _pause()
        spins += 1
        if spins > SPINS_BEFORE_YIELD:
            _yield_core()


@compiled()
def items(counters, stage, num_items, per_claim):  # type: ignore[no-untyped-def]
    """Yields the items of a stage that are this thread's to do; ends when all are done, by whichever thread.

    A thread claims `per_claim` neighbours at once.
    """
    claimed = np.uint64(counters[stage].ctypes.data)
    done = claimed + np.uint64(8 * DONE)
    num_done = 0
    while True:
        first = _add(claimed, per_claim)
        if first >= num_items:
            break
        last = min(first + per_claim, num_items)
        for item in range(first, last):  # noqa: UP028  # Numba knows no `yield from`
            yield item
        num_done += last - first
    _finish(done, num_done, num_items)


@compiled()
def items_ahead(counters, stage, num_items, per_claim):  # type: ignore[no-untyped-def]
    """As `items`, each with the one that this thread does next, or -1, so that it may prepare that meanwhile."""
    claimed = np.uint64(counters[stage].ctypes.data)
    first = _add(claimed, per_claim)
    num_done = 0
    while first < num_items:
        last = min(first + per_claim, num_items)
        following = _add(claimed, per_claim)
        for item in range(first, last - 1):
            yield item, item + 1
        yield last - 1, following if following < num_items else -1
        num_done += last - first
        first = following
    _finish(claimed + np.uint64(8 * DONE), num_done, num_items)
