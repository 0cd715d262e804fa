"""A task that runs beside the requests: begun once, ended for certain."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

from router.stopping import AGAIN_S, end


class Background:
    """One task of the running loop. `name` is its own, `again_s` how long it may take to end once it is told to."""

    def __init__(self, name: str, again_s: float = AGAIN_S) -> None:
        self._name = name
        self._again_s = again_s
        self._task: asyncio.Task[None] | None = None

    def start(self, run: Callable[[], Coroutine[None, None, None]]) -> None:
        """Begin, unless it runs already."""
        if self._task is None:
            self._task = asyncio.create_task(run(), name=self._name)

    async def stop(self) -> None:
        """End it; afterwards it can begin anew."""
        task, self._task = self._task, None
        if task is not None:
            await end([task], self._again_s)


__all__ = ["Background"]
