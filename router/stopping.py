"""Ending tasks for certain."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

_AGAIN_S = 0.2


async def end(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks and return when all have ended; what they raise is dropped.

    Cancelled again and again: a client library can swallow a cancellation that meets a timeout of its own.
    """
    running = set(tasks)
    while running:
        for task in running:
            task.cancel()
        done, running = await asyncio.wait(running, timeout=_AGAIN_S)
        for task in done:
            if not task.cancelled():
                task.exception()
