"""Which events are kept when there are too many: at random, with a probability that is known before and recorded."""

from __future__ import annotations


class Sampler:
    """Keeps about `per_s` of whatever comes per second.

    An event's probability depends only on how many came before it, so weighing each kept one by its inverse gives
    unbiased sums (Horvitz and Thompson, 1952).
    """

    __slots__ = ("_before", "_count", "_second", "per_s")

    def __init__(self, per_s: float) -> None:
        self.per_s = per_s
        self._second = -1
        self._count = self._before = 0

    def probability(self, now: float) -> float:
        """Return the probability with which the event at `now` (monotonic seconds) is kept; in (0, 1]."""
        second = int(now)
        if second != self._second:
            self._before = self._count if second == self._second + 1 else 0
            self._second, self._count = second, 0
        self._count += 1
        rate = max(self._count, self._before)
        return 1.0 if rate <= self.per_s else self.per_s / rate


__all__ = ["Sampler"]
