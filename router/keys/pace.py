"""How fast keys are spent in this worker, and what is yet to be told to the others."""

from __future__ import annotations

import asyncio
import math

_BURST_S = 10.0
"""A key may spend so many seconds of its limit at once."""
_LONGEST_WAIT_S = 86_400.0
NEARLY = 1e-6
"""Of one request or token: so far sums of fractions may be off."""


class Usage:
    """What one key may still spend of one limit, requests or tokens: a bucket that refills all the time, by a minute's
    limit in a minute. Lives through changes of the key's record."""

    __slots__ = ("_at", "_level", "spent")

    def __init__(self) -> None:
        self.spent = 0.0
        """What was spent, less what was given back, that other workers do not know of yet."""
        self._level: float | None = None
        self._at = 0.0

    @staticmethod
    def bucket(per_minute: float) -> tuple[float, float]:
        """Return what comes in a second, and the most at once."""
        rate = per_minute / 60.0
        return rate, max(1.0, rate * _BURST_S)

    def level(self, per_minute: float, now: float) -> float:
        """Return what is left now; below 0 it is a debt."""
        rate, most = self.bucket(per_minute)
        level = most if self._level is None else min(most, self._level + max(0.0, now - self._at) * rate)
        self._level, self._at = level, max(self._at, now)
        return level

    def wait_s(self, per_minute: float, least: float, now: float) -> float:
        """Return the seconds after which so much will be left, a day at most; 0: it is."""
        lacking = least - self.level(per_minute, now)
        return min(_LONGEST_WAIT_S, lacking * 60.0 / per_minute) if lacking > NEARLY else 0.0

    def take(self, per_minute: float, now: float) -> float:
        """Take one whole; return 0, or the seconds after which there is room for it, a day at most."""
        wait_s = self.wait_s(per_minute, 1.0, now)
        if wait_s == 0.0:
            self.spend(1.0)
        return wait_s

    def spend(self, amount: float) -> None:
        """Spend so much, be it left or not; below 0: give it back. Once `level` was asked."""
        self._level = (self._level or 0.0) - amount
        self.spent += amount

    def heard(self, level: float, told: float, now: float) -> None:
        """Take over the budget of all workers, from which `told` of this one's is taken off already."""
        self.spent -= told
        self._level, self._at = level - self.spent, max(self._at, now)

    def forgive(self, per_minute: float, allowed: float, now: float) -> None:
        """Others cannot be told now: forget of what they don't know all that came back since, `allowed` of it here."""
        self.spent = min(self.spent, self.bucket(per_minute)[1] - self.level(allowed, now))


class Pace:
    """What all keys of a worker share. `workers`: how many its machine is to have."""

    def __init__(self, workers: int = 1) -> None:
        self.workers = workers
        """How many there are, as far as is known."""
        self._alone = workers == 1
        self.shared = False
        """Whether workers know of each other's requests; else each keeps its share of every limit."""
        self.settled_at = -math.inf
        """From when on, on the monotonic clock, all have told again what they run since Redis came back."""
        self.wake = asyncio.Event()
        """There is something to tell."""
        self.urgent = asyncio.Event()
        """A request waits for it."""
        self._spent: dict[str, tuple[Usage, float]] = {}

    def allowed(self, per_minute: float) -> float:
        """Return how much of a limit is this worker's."""
        return per_minute if self.shared else per_minute / self.workers

    def share(self, limit: int, now: float) -> int | None:
        """Return how many of a key's requests may run here by this worker's own count.

        None: others count too, and a place has to be claimed. Where a machine is to have several workers, one that
        knows of no other yet, or no longer, claims its places too.
        """
        alone = self._alone and self.workers == 1
        if self.shared and not alone and now >= self.settled_at:
            return None
        return max(1, limit // self.workers)

    def mark(self, name: str, usage: Usage, per_minute: float) -> None:
        """Note that what a key spent is to be told, or to be heard again; `per_minute` is its whole limit."""
        self._spent[name] = usage, per_minute
        self.wake.set()

    def take(self, most: int) -> dict[str, tuple[Usage, float]]:
        """Return what is to be told now, at most so many keys' limits, and forget it."""
        if len(self._spent) <= most:
            found, self._spent = self._spent, {}
            return found
        found = {name: self._spent.pop(name) for name in list(self._spent)[:most]}
        self.wake.set()
        return found


__all__ = ["NEARLY", "Pace", "Usage"]
