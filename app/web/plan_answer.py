"""The answer to the question what something would cost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from paged_chat.engine.errors import PagedChatError

Plan = TypeVar("Plan")


async def plan_answer(
    find_plan: Callable[[], Future[Plan]], shown: Callable[[Plan], dict[str, Any]] = lambda plan: {"words": str(plan)}
) -> dict[str, Any]:
    """The plan that `find_plan`, which is called on a thread, gives or promises, as `shown`.

    That it would be refused is an answer here, no error: nobody has sent anything.
    """
    try:
        plan = await asyncio.wrap_future(await asyncio.to_thread(find_plan))
    except PagedChatError as error:
        return {"refusal": str(error)}
    return shown(plan)
