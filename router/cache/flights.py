"""One upstream call for identical requests: the first asks, the others wait for what it gets.

Each waits for itself: a client that leaves takes nobody with it. When the one that asks leaves, its call goes on for
those who wait; when nobody waits any more it ends.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Literal

from router.cache.entry import Entry

REMEMBERED_S = 10.0
"""How long nobody waits, after an answer that could not be shared, seconds."""
MOST_REMEMBERED = 1024
Landing = Entry | Literal["alone", "left"]
"""What a flight brought: an answer; `alone`: one that cannot be shared; `left`: who asked went before
there was a call."""


class Flight:
    """One call in the air; whoever began it must `land` it, whatever happens."""

    def __init__(self) -> None:
        self._landed: asyncio.Future[Landing] = asyncio.get_running_loop().create_future()
        self.waiting = 0
        self.orphan = False
        """Whether the client that began it is gone."""
        self.on_alone: Callable[[], None] | None = None
        """Called whenever nobody waits any more."""

    def land(self, landing: Landing) -> None:
        """Tell all who wait; only the first call counts."""
        if not self._landed.done():
            self._landed.set_result(landing)

    async def wait(self, timeout_s: float) -> Landing:
        """Return what came; `alone` after `timeout_s` seconds. Cancelled, it leaves the flight as it is."""
        self.waiting += 1
        try:
            done, _ = await asyncio.wait([self._landed], timeout=timeout_s)
        finally:
            self.waiting -= 1
            if not self.waiting and self.on_alone is not None:
                self.on_alone()
        return self._landed.result() if done else "alone"


class Flights:
    """The calls of one worker that are in the air, by key."""

    def __init__(self) -> None:
        self._flights: dict[str, Flight] = {}
        self._alone_until: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._flights)

    @property
    def orphans(self) -> int:
        """Calls in the air whose own clients are gone."""
        return sum(flight.orphan for flight in self._flights.values())

    def find(self, digest: str) -> Flight | None:
        """Return the flight of this request, if one is in the air."""
        return self._flights.get(digest)

    def useless(self, digest: str, now: float) -> bool:
        """Return whether waiting would most likely be for nothing: the last answer could not be shared."""
        until = self._alone_until.get(digest)
        if until is None or now < until:
            return until is not None
        del self._alone_until[digest]
        return False

    def begin(self, digest: str) -> Flight:
        """Begin one."""
        flight = self._flights[digest] = Flight()
        return flight

    def end(self, digest: str, flight: Flight, landing: Landing) -> None:
        """Land it and forget it."""
        if self._flights.get(digest) is flight:
            del self._flights[digest]
        if landing == "alone":
            if len(self._alone_until) >= MOST_REMEMBERED:
                self._alone_until.pop(next(iter(self._alone_until)))
            self._alone_until[digest] = time.monotonic() + REMEMBERED_S
        flight.land(landing)
