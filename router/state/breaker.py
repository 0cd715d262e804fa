"""A circuit breaker that opens on failures in a row and is closed by a half-open probe. The caller brings the clock."""

from __future__ import annotations

from typing import Literal

BreakerState = Literal["closed", "open"]


class Breaker:
    """Counts failures in a row; when open, `retry_at` is the time of the next half-open probe."""

    __slots__ = ("_failures", "_max_s", "_pause_s", "_start_s", "_threshold", "retry_at", "state")

    def __init__(self, failures: int, open_s: float, open_max_s: float) -> None:
        self._threshold = failures
        self._start_s = open_s
        self._max_s = max(open_s, open_max_s)
        self._pause_s = open_s
        self._failures = 0
        self.state: BreakerState = "closed"
        self.retry_at = 0.0

    def retune(self, failures: int, open_s: float, open_max_s: float) -> None:
        """Go by other limits from now on; what was counted stays."""
        if open_s != self._start_s:
            self._pause_s = open_s
        self._threshold, self._start_s, self._max_s = failures, open_s, max(open_s, open_max_s)

    def success(self) -> None:
        """Note an answer: closes the breaker and forgets its failures."""
        self._failures = 0
        self._pause_s = self._start_s
        self.state = "closed"

    def failure(self, now: float) -> bool:
        """Note a failure; return True when this one opened the breaker."""
        self._failures += 1
        if self.state == "open" or self._failures < self._threshold:
            return False
        self.state = "open"
        self.retry_at = now + self._pause_s
        return True

    def probe_failed(self, now: float) -> None:
        """Note a half-open probe that failed: the next pause is twice as long."""
        self._pause_s = min(self._pause_s * 2.0, self._max_s)
        self.retry_at = now + self._pause_s
