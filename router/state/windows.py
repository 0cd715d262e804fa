"""Sums over sliding windows, in a fixed ring of buckets. The caller brings the clock."""

from __future__ import annotations


class Window:
    """Sum and count of what was added in the last `seconds`; memory is `buckets` pairs whatever comes in."""

    __slots__ = ("_buckets", "_counts", "_epoch", "_sums", "_width")

    def __init__(self, seconds: float, buckets: int = 20) -> None:
        self._width = seconds / buckets
        self._buckets = buckets
        self._sums = [0.0] * buckets
        self._counts = [0] * buckets
        self._epoch = -(10**18)

    @property
    def seconds(self) -> float:
        """The window's length."""
        return self._width * self._buckets

    def add(self, now: float, value: float) -> None:
        """Take in a value at time `now` (seconds of a monotonic clock)."""
        self._advance(now)
        slot = self._epoch % self._buckets
        self._sums[slot] += value
        self._counts[slot] += 1

    def total(self, now: float) -> float:
        """Return the window's sum."""
        self._advance(now)
        return sum(self._sums)

    def count(self, now: float) -> int:
        """Return how many values the window holds."""
        self._advance(now)
        return sum(self._counts)

    def mean(self, now: float) -> float | None:
        """Return the mean of the window's values, or None."""
        count = self.count(now)
        return sum(self._sums) / count if count else None

    def _advance(self, now: float) -> None:
        epoch = int(now // self._width)
        behind = epoch - self._epoch
        if behind <= 0:
            return
        for i in range(min(behind, self._buckets)):
            slot = (epoch - i) % self._buckets
            self._sums[slot] = 0.0
            self._counts[slot] = 0
        self._epoch = epoch
