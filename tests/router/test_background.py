"""A background task runs once at a time, ends for certain, and may have time to put things away."""

from __future__ import annotations

import asyncio

from router.background import Background
from tests.conftest import until


async def test_begun_twice_it_runs_once_and_after_its_end_it_begins_anew() -> None:
    began, ended = 0, 0

    async def run() -> None:
        nonlocal began, ended
        began += 1
        try:
            await asyncio.sleep(60)
        finally:
            ended += 1

    task = Background("test")
    await task.stop()
    for number in (1, 2):
        task.start(run)
        task.start(run)
        await until(lambda number=number: began == number)
        await task.stop()
        await task.stop()
        assert (began, ended) == (number, number)


async def test_one_that_swallows_a_cancellation_ends_all_the_same() -> None:
    async def deaf() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await asyncio.sleep(60)

    task = Background("test", again_s=0.01)
    task.start(deaf)
    await asyncio.sleep(0)
    async with asyncio.timeout(30):
        await task.stop()


async def test_one_that_puts_things_away_is_not_disturbed() -> None:
    away = False

    async def tidy() -> None:
        nonlocal away
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.3)
            away = True

    task = Background("test", again_s=60.0)
    task.start(tidy)
    await asyncio.sleep(0)
    await task.stop()
    assert away
