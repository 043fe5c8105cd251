"""Tasks that nobody needs any more are ended, and whoever waits for that can be cancelled as ever."""

import asyncio

from paged_chat.app.task_end import end_tasks


def test_it_waits_until_they_are_over_whatever_they_end_with():
    ends = []

    async def slow():
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ends.append("slow")

    async def broken():
        try:
            await asyncio.Event().wait()
        finally:
            ends.append("broken")
            raise ValueError("on the way out")

    async def story():
        tasks = [asyncio.create_task(work()) for work in (slow, broken)]
        await asyncio.sleep(0)
        await end_tasks(*tasks)
        assert all(task.done() for task in tasks)

    asyncio.run(story())
    assert sorted(ends) == ["broken", "slow"]
    asyncio.run(end_tasks())


def test_who_is_cancelled_while_it_waits_gets_its_own_cancellation():
    """By the words in it anyio knows that it was its own scope that ended, and goes on behind it."""

    async def wait(task: asyncio.Task[object]) -> tuple[object, ...]:
        try:
            await end_tasks(task)
        except asyncio.CancelledError as cancelled:
            return cancelled.args
        return ("it wasn't cancelled",)

    async def story():
        task = asyncio.create_task(asyncio.Event().wait())
        await asyncio.sleep(0)
        waiting = asyncio.create_task(wait(task))
        await asyncio.sleep(0)  # it has cancelled the task, which hasn't noticed yet
        waiting.cancel("the scope's own words")
        return await waiting

    assert asyncio.run(story()) == ("the scope's own words",)
