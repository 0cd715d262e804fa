"""Ending tasks for certain."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

AGAIN_S = 0.2


async def end(tasks: Iterable[asyncio.Task[Any]], again_s: float = AGAIN_S) -> None:
    """Cancel tasks and return when all have ended; what they raise is dropped.

    Cancelled again every `again_s` seconds: a client library can swallow a cancellation that meets a timeout of its own.
    What has something to put away first needs longer than that takes.
    """
    running = set(tasks)
    while running:
        for task in running:
            task.cancel()
        done, running = await asyncio.wait(running, timeout=again_s)
        for task in done:
            if not task.cancelled():
                task.exception()
