"""Prompt tokens on their way through one replica: how many wait to be computed, and how many come per second.

A server computes prompts between the tokens of all answers that it is making, so both lengthen what comes next. What this
worker sends is known at once; what others send is told by the server's own counter, whenever it is read.
"""

from __future__ import annotations

import math

MEMORY_S = 5.0
"""Over how long a rate is taken: shorter than an answer, so that a change is seen before the answers end."""


class Prompts:
    """The prompt tokens of one replica. The caller brings the clock; memory does not grow."""

    __slots__ = ("_at", "_backlog", "_counted", "_counted_at", "_others", "_others_rate", "_own", "_own_then", "_rate")

    def __init__(self) -> None:
        self._at = -math.inf
        self._rate = 0.0
        self._backlog = 0.0
        self._own = 0.0
        self._own_then = 0.0
        self._others = 0.0
        self._others_rate = 0.0
        self._counted: float | None = None
        self._counted_at = -math.inf

    def send(self, now: float, tokens: float, per_token_s: float) -> float:
        """Note a prompt that is sent now; return the tokens that were ahead of it."""
        ahead = self.backlog(now, per_token_s)
        self._rate = self._decayed(now) + tokens / MEMORY_S
        self._backlog = ahead + tokens
        self._at = now
        self._own += tokens
        return ahead

    def backlog(self, now: float, per_token_s: float) -> float:
        """Return the tokens sent from here that are not computed yet, at `per_token_s` each."""
        return max(0.0, self._backlog - (now - self._at) / per_token_s) if self._backlog and per_token_s > 0.0 else 0.0

    def rate(self, now: float) -> float:
        """Return the prompt tokens/s that come to the replica from everybody."""
        return self._decayed(now) + self._others_rate

    def total(self, now: float) -> float:
        """Return the prompt tokens that came so far, from everybody: only differences mean anything."""
        return self._own + self._others + self._others_rate * max(0.0, now - self._counted_at if self._others_rate else 0.0)

    def count(self, now: float, counter: float) -> None:
        """Take in the server's own counter of prompt tokens."""
        before, then = self._counted, self._counted_at
        if before is not None and counter >= before and now > then:
            others = max(0.0, counter - before - (self._own - self._own_then))
            self._others += others
            keep = math.exp((then - now) / MEMORY_S)
            self._others_rate = self._others_rate * keep + others / (now - then) * (1.0 - keep)
        self._counted, self._counted_at, self._own_then = counter, now, self._own

    def _decayed(self, now: float) -> float:
        return self._rate * math.exp((self._at - now) / MEMORY_S) if self._rate else 0.0
