"""The end of asyncio tasks that nobody needs any more."""

from __future__ import annotations

import asyncio
from typing import Any


async def end_tasks(*tasks: asyncio.Task[Any]) -> None:
    """Cancels them and waits until they are over, whatever they end with.

    `asyncio.gather` isn't used: where the waiting task is cancelled itself, gather raises the cancellation of a task
    that it waited for, in which anyio, under Starlette, doesn't know its own any more, and doesn't take it back.
    """
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)
    for task in tasks:
        if not task.cancelled():
            task.exception()  # so that it counts as seen
