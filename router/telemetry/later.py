"""Accounts of ended requests, made a moment later and several at once.

The next request need not wait for them, and code that runs several times in a row costs a fraction of what it costs
between two requests, when it has left the processor's caches.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable

from router.proxy.outcome import Outcome

WAIT_S = 0.05
"""Longest wait for company, seconds."""
MOST = 16
"""So many are made at once: they hold the loop for about a millisecond."""


class Later:
    """Calls `account` once for each outcome, in their order; on the running loop alone."""

    def __init__(self, account: Callable[[Outcome], None], log: logging.Logger) -> None:
        self._account = account
        self._log = log
        self._waiting: deque[Outcome] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def put(self, outcome: Outcome) -> None:
        """Take an ended request. Never raises."""
        self._waiting.append(outcome)
        if len(self._waiting) >= MOST:
            self.settle()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(WAIT_S, self.settle)

    def settle(self) -> None:
        """Make the accounts of all that wait, now."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._waiting:
            outcome = self._waiting.popleft()
            try:
                self._account(outcome)
            except Exception:
                self._log.exception("accounts of a request failed: id=%s", outcome.request_id)


__all__ = ["Later"]
