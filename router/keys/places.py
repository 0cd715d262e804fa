"""How many requests of a key run at once: places that this worker has claimed of a limit that all workers share.

A request enters at once while its worker holds a free place. A worker's claim in Redis is what it runs and some spare
places, a share of what is free that lapses by itself; so it holds some wherever a limit is far. Without one the request
waits for one answer of Redis, and where all places are taken for `WAIT_S` at most, since one that was just left may
not have been told yet.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import NamedTuple

from router.keys.pace import Pace

HOLD_S = 1.0
"""A spare place is held so long after it was claimed."""
WAIT_S = 0.15
"""A request waits so long for a place, and for the first answer after that."""
RETRY_S = 0.02
"""Pause between two questions for a place of the same key."""
AGAIN_S = 20.0
"""A claim that does not change is told again so often, for a Redis that lost some of its data."""


class Told(NamedTuple):
    """One key in this worker, as it is told to Redis."""

    running: int
    kept: int
    """Spare places that requests may take while the answer is on its way."""
    waiting: int
    limit: int
    """0: it claims nothing beside what it runs."""


class Heard(NamedTuple):
    """What Redis answers."""

    granted: int
    """Places for those that wait."""
    spare: int
    """Places more, those kept among them."""
    rest: int
    """Places that nobody runs on and no other worker holds or waits for; below 0 where there are too few."""
    wanted: bool
    """Whether requests wait in other workers."""


class Claim:
    """One key's requests in this worker, and its places; lives through changes of its record."""

    __slots__ = ("_early", "_held", "_lapses", "_rest", "_wanted", "asks_at", "limit", "running", "told_at", "waiting")

    def __init__(self) -> None:
        self.running = 0
        self.limit: int | None = None
        """None: it had none when it last sent a request, and nobody is told of it."""
        self.waiting: deque[tuple[asyncio.Future[bool], float]] = deque()
        """Requests without a place, and until when each waits."""
        self.asks_at = 0.0
        """Not before this a new request asks for itself: others have just been told that there is no place."""
        self.told_at = 0.0
        self._held = 0
        """Places claimed, those in use among them."""
        self._lapses = 0.0
        self._rest = 0
        self._wanted = False
        self._early = False

    @property
    def tight(self) -> bool:
        """Whether others may be waiting for a place that is left here."""
        return self._rest <= 0

    def take(self, limit: int, pace: Pace, now: float) -> bool:
        """Take a place if there is one for this request at once."""
        self.limit = limit
        if self.waiting:
            return False
        share = pace.share(limit, now)
        if share is not None:
            free = self.running < share
        else:
            free = self.running < limit and (self._holds(now) or self._may_be_early(limit, pace, now))
        self.running += free
        return free

    def _holds(self, now: float) -> bool:
        return self.running < self._held and now < self._lapses

    def _may_be_early(self, limit: int, pace: Pace, now: float) -> bool:
        # Far from its limit when last looked at: one request need not wait for its place to be claimed.
        if self._early or now < self._lapses or limit <= 2 * pace.workers or self._rest <= pace.workers:
            return False
        self._early = True
        return True

    def give(self, now: float) -> None:
        """One request has ended."""
        self.running -= 1
        if self._wanted or self._rest < 0:
            # Whoever waits in another worker may have come before; or more run than may, and nobody takes this place.
            self._held = min(self._held, self.running)
        self._serve(now)

    def forget(self, future: asyncio.Future[bool]) -> None:
        """A request that waited has gone."""
        self.waiting = deque(entry for entry in self.waiting if entry[0] is not future)

    def tell(self, pace: Pace, now: float) -> Told:
        """Return what to tell, and hold no more than that until there is an answer."""
        kept, limit = 0, self.limit or 1
        if pace.share(limit, now) is not None:
            # By its own count now: others may not have told what they run, so nothing is claimed beside that.
            limit = 0
        elif now < self._lapses:
            kept = max(0, min(self._held - self.running, self._rest // (pace.workers + 1)))
        self._held = self.running + kept
        return Told(self.running, kept, len(self.waiting), limit)

    def heard(self, told: Told, answer: Heard, sent_at: float, now: float) -> bool:
        """Take over the answer; return whether there is something new to tell."""
        self._held = told.running + answer.granted + (0 if answer.wanted else answer.spare)
        self._lapses = sent_at + HOLD_S
        self._rest, self._wanted = answer.rest, answer.wanted
        self._early = False
        self.told_at = now
        self._serve(now)
        while self.waiting and now >= self.waiting[0][1]:
            future, _ = self.waiting.popleft()
            if not future.done():
                future.set_result(False)
        if self.waiting:
            self.asks_at = now + RETRY_S
        return self.running != told.running + answer.granted or (answer.wanted and answer.spare > 0)

    def decide(self, pace: Pace, now: float) -> None:
        """Let those that wait enter by this worker's own count, or refuse them: there is nobody to ask."""
        share = pace.share(self.limit or 1, now) or 0
        while self.waiting:
            future, _ = self.waiting.popleft()
            if not future.done():
                enters = self.running < share
                self.running += enters
                future.set_result(enters)

    def _serve(self, now: float) -> None:
        while self.waiting and self._holds(now) and self.running < (self.limit or 1):
            future, _ = self.waiting.popleft()
            if not future.done():
                self.running += 1
                future.set_result(True)


class Claims:
    """All keys' claims of a worker, by digest."""

    def __init__(self, pace: Pace, clock: Callable[[], float] = time.monotonic) -> None:
        self.pace = pace
        self._clock = clock
        self._asking: dict[str, Claim] = {}
        self._changed: dict[str, Claim] = {}
        self._live: dict[str, Claim] = {}

    @property
    def asking(self) -> bool:
        """Whether requests wait for a place."""
        return bool(self._asking)

    def count(self, claim: Claim) -> None:
        """One more request of a key without a limit runs; `leave` must follow."""
        claim.limit = None
        claim.running += 1

    async def enter(self, name: str, claim: Claim, limit: int, now: float) -> bool:
        """Return whether one more request may run; then `leave` must follow."""
        if not claim.take(limit, self.pace, now):
            if self.pace.share(limit, now) is not None or len(claim.waiting) >= limit:
                return False
            if not await self._place(name, claim, now):
                return False
        self._live[name] = claim
        self._change(name, claim)
        return True

    async def _place(self, name: str, claim: Claim, now: float) -> bool:
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        claim.waiting.append((future, now + WAIT_S))
        self._asking[name] = claim
        self.pace.wake.set()
        if now >= claim.asks_at:
            self.pace.urgent.set()
        try:
            return await future
        except asyncio.CancelledError:
            if future.cancelled():
                claim.forget(future)
            elif future.result():
                self.leave(name, claim)
            raise

    def leave(self, name: str, claim: Claim) -> None:
        """One request has ended."""
        now = self._clock()
        claim.give(now)
        if name not in self._live:
            return
        if not claim.running:
            del self._live[name]
        self._change(name, claim)
        if claim.tight and self.pace.share(claim.limit or 1, now) is None:
            self.pace.urgent.set()

    def _change(self, name: str, claim: Claim) -> None:
        self._changed[name] = claim
        self.pace.wake.set()

    def due(self, most: int) -> dict[str, Claim]:
        """Return what is to be told now, at most so many keys, and forget it. Those with waiting requests go first."""
        found: dict[str, Claim] = {}
        for marked in (self._asking, self._changed):
            for name in list(islice(marked, most - len(found))):
                found[name] = marked.pop(name)
        for name in found:
            self._changed.pop(name, None)
        if self._asking:
            self.pace.urgent.set()
        if self._asking or self._changed:
            self.pace.wake.set()
        return found

    def heard(self, name: str, claim: Claim, told: Told, answer: Heard, sent_at: float) -> None:
        """Take over Redis' answer for one key."""
        if claim.heard(told, answer, sent_at, self._clock()):
            self._change(name, claim)
        if claim.waiting:
            self._asking[name] = claim
            self.pace.wake.set()

    def unheard(self, claims: dict[str, Claim]) -> None:
        """There was no answer: these are told later, and whoever waits is decided on here."""
        self._changed.update(claims)
        self._changed.update(self._asking)
        self._asking.clear()
        now = self._clock()
        for claim in self._changed.values():
            claim.decide(self.pace, now)

    def again(self, told_before: float) -> None:
        """Tell everything once more that runs and was last told before this time."""
        for name, claim in self._live.items():
            if claim.told_at < told_before:
                self._change(name, claim)


__all__ = ["Claim", "Claims", "Heard", "Told"]
