"""Tasks end, even those that do not hear the first time."""

from __future__ import annotations

import asyncio

from router.stopping import end


async def test_ends_a_task_that_swallows_a_cancellation() -> None:
    swallowed = asyncio.Event()

    async def deaf() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            swallowed.set()
        await asyncio.sleep(60)

    async def fails() -> None:
        raise ValueError

    tasks = [asyncio.create_task(deaf()), asyncio.create_task(fails())]
    await asyncio.sleep(0)
    async with asyncio.timeout(30):
        await end(tasks)
    assert swallowed.is_set()
    assert all(task.done() for task in tasks)


async def test_nothing_to_end() -> None:
    await end([])
