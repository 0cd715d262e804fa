"""Rates over the last 10 s, minute and five minutes, in a ring of seconds. The caller brings the clock."""

from __future__ import annotations

from typing import NamedTuple

WINDOWS: dict[str, int] = {"10s": 10, "1m": 60, "5m": 300}
"""Length in seconds by name."""
_SLOTS = max(WINDOWS.values()) + 1
_IDLE = -(10**18)


class Rate(NamedTuple):
    """What came per second; or, before it is divided, what came."""

    requests: float = 0.0
    prompt_tokens: float = 0.0
    completion_tokens: float = 0.0
    targeted_requests: float = 0.0
    """Requests that could meet their scenario's targets, or miss them."""
    goodput_requests: float = 0.0
    """Requests that met them."""
    goodput_tokens: float = 0.0
    """Generated tokens of those."""


_WIDTH = len(Rate._fields)


class Rates:
    """Sums of the last 301 seconds; memory is the same whatever comes in. Sums of several workers add up."""

    __slots__ = ("_head", "_last", "_ring")

    def __init__(self) -> None:
        self._ring = [[0.0] * _WIDTH for _ in range(_SLOTS)]
        self._head = self._last = _IDLE

    def add(
        self,
        now: float,
        prompt_tokens: float,
        completion_tokens: float,
        targeted: float,
        good: float,
        good_tokens: float,
    ) -> None:
        """Take in one request that ended at `now` (seconds of a monotonic clock)."""
        second = int(now)
        if second > self._head:
            self._advance(second)
        self._last = self._head
        slot = self._ring[self._head % _SLOTS]
        slot[0] += 1.0
        slot[1] += prompt_tokens
        slot[2] += completion_tokens
        slot[3] += targeted
        slot[4] += good
        slot[5] += good_tokens

    def idle(self, now: float) -> bool:
        """Whether nothing came in the longest window."""
        return int(now) - self._last >= _SLOTS

    def rate(self, now: float, seconds: int) -> Rate:
        """Return the window's rates; of its oldest second, which it covers in part, that part of the sum counts."""
        second = int(now)
        if second > self._head:
            self._advance(second)
        part = 1.0 - (now - second) if second == self._head else 1.0
        slots = [self._ring[(self._head - i) % _SLOTS] for i in range(seconds)]
        oldest = self._ring[(self._head - seconds) % _SLOTS]
        return Rate(*((sum(s[k] for s in slots) + part * oldest[k]) / seconds for k in range(_WIDTH)))

    def _advance(self, second: int) -> None:
        for i in range(min(second - self._head, _SLOTS)):
            self._ring[(second - i) % _SLOTS] = [0.0] * _WIDTH
        self._head = second


__all__ = ["WINDOWS", "Rate", "Rates"]
