"""How fast keys are spent in this worker, and what is yet to be told to the others."""

from __future__ import annotations

import asyncio
import math

_BURST_S = 10.0
"""A key may spend so many seconds of its limit at once."""
_LONGEST_WAIT_S = 86_400.0


class Usage:
    """How many requests one key may still send; lives through changes of its record."""

    __slots__ = ("_at", "_tokens", "spent")

    def __init__(self) -> None:
        self.spent = 0
        """Requests let through that other workers do not know of yet."""
        self._tokens: float | None = None
        self._at = 0.0

    @staticmethod
    def bucket(per_minute: float) -> tuple[float, float]:
        """Return requests per second, and the most at once."""
        rate = per_minute / 60.0
        return rate, max(1.0, rate * _BURST_S)

    def take(self, per_minute: float, now: float) -> float:
        """Take one request; return 0, or the seconds after which there is room for it, a day at most."""
        rate, most = self.bucket(per_minute)
        tokens = most if self._tokens is None else min(most, self._tokens + (now - self._at) * rate)
        self._at = now
        if tokens >= 1.0:
            self._tokens = tokens - 1.0
            # Redis away for long: a debt beyond one burst is forgiven.
            self.spent = min(self.spent + 1, int(most) + 1)
            return 0.0
        self._tokens = tokens
        return min(_LONGEST_WAIT_S, (1.0 - tokens) / rate)

    def heard(self, tokens: float, told: int, now: float) -> None:
        """Take over the budget of all workers, from which `told` of this one's requests are taken off already."""
        self.spent = max(0, self.spent - told)
        self._tokens, self._at = tokens - self.spent, now


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
        """Note that a key's requests are to be told; `name` is its digest, `per_minute` its whole limit."""
        self._spent[name] = usage, per_minute
        self.wake.set()

    def take(self, most: int) -> dict[str, tuple[Usage, float]]:
        """Return what is to be told now, at most so many keys, and forget it."""
        if len(self._spent) <= most:
            found, self._spent = self._spent, {}
            return found
        found = {name: self._spent.pop(name) for name in list(self._spent)[:most]}
        self.wake.set()
        return found


__all__ = ["Pace", "Usage"]
