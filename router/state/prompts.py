"""Prompt tokens on their way through one replica: how many wait to be computed, and how many come per second.

A server computes prompts between the tokens of all answers that it is making, so both lengthen what comes next. What this
worker sends is known at once; what others send only the server's own counter tells, whenever it is read. The larger of
the two counts: the counter runs behind while prompts wait, and a worker alone sees less than all.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

MEMORY_S = 5.0
"""Over how long a rate is taken: shorter than an answer, so that a change is seen before the answers end."""
_MOST_OTHERS = 64.0


class Mark(NamedTuple):
    """A moment: prompt tokens that had been sent from here, and that the server had counted."""

    own: float = 0.0
    counted: float = 0.0
    """What the counter says once all that had been sent is computed."""


BEGINNING: Final = Mark()
"""Before anything was sent."""


class Prompts:
    """The prompt tokens of one replica. The caller brings the clock; memory does not grow."""

    __slots__ = ("_at", "_backlog", "_counted_rate", "_counter", "_counter_at", "_own", "_rate")

    def __init__(self) -> None:
        self._at = -math.inf
        self._rate = 0.0
        self._own = 0.0
        self._backlog = 0.0
        self._counter = 0.0
        self._counter_at = -math.inf
        self._counted_rate = 0.0

    def send(self, now: float, tokens: float, per_token_s: float) -> float:
        """Note a prompt that is sent now; return the tokens ahead of it that are not computed yet.

        `per_token_s`: seconds that the replica takes for one. Where others send as well, theirs are taken to come evenly
        between one's own.
        """
        ahead = self.backlog(now, per_token_s)
        self._move(now, self._faded(now) + tokens / MEMORY_S, 0.0)
        self._backlog = ahead + tokens * self._others()
        self._own += tokens
        return ahead

    def computed(self, now: float, mark: Mark, per_token_s: float) -> None:
        """Note that the prompt sent at `mark` was computed, so what came before it was: only later ones can wait.

        However wrong `per_token_s` is, no backlog outlives the requests that it is made of.
        """
        ahead = self.backlog(now, per_token_s) if per_token_s > 0.0 else self._backlog
        self._move(now, self._faded(now), min(ahead, max(0.0, self._own - mark.own) * self._others()))

    def take_back(self, now: float, tokens: float, sent: float, per_token_s: float) -> None:
        """Note that a prompt sent at `sent` won't be computed: it was refused, or its server or client went away."""
        ahead = self.backlog(now, per_token_s) if per_token_s > 0.0 else self._backlog
        rate = max(0.0, self._faded(now) - tokens / MEMORY_S * math.exp(min(0.0, sent - now) / MEMORY_S))
        self._move(now, rate, max(0.0, ahead - tokens * self._others()))
        self._own -= tokens

    def backlog(self, now: float, per_token_s: float) -> float:
        """Return the tokens that are not computed yet, at `per_token_s` each."""
        if not self._backlog or per_token_s <= 0.0:
            return 0.0
        return max(0.0, self._backlog - (now - self._at) / per_token_s)

    def rate(self, now: float) -> float:
        """Return the prompt tokens/s that come to the replica from everybody."""
        # Of a server whose counter cannot be read any more nobody knows: what it told fades.
        silent = max(0.0, now - self._counter_at - MEMORY_S) if self._counted_rate else 0.0
        return max(self._faded(now), self._counted_rate * math.exp(-silent / MEMORY_S))

    def mark(self, now: float, waiting: float = 0.0) -> Mark:
        """Return what to compare a later moment with; `waiting`: tokens sent before, not computed yet and so not counted."""
        return Mark(self._own, self._counted(now) + waiting)

    def since(self, mark: Mark, now: float) -> float:
        """Return the prompt tokens that came since then, from everybody."""
        return max(0.0, self._own - mark.own, self._counted(now) - mark.counted)

    def count(self, now: float, counter: float) -> None:
        """Take in the server's counter of prompt tokens; one that fell belongs to a server that began anew."""
        if not math.isfinite(counter):
            return
        passed = now - self._counter_at
        if 0.0 < passed < math.inf:
            came = counter - self._counter if counter >= self._counter else counter
            keep = math.exp(-passed / MEMORY_S)
            self._counted_rate = self._counted_rate * keep + came / passed * (1.0 - keep)
        self._counter, self._counter_at = counter, now

    def _move(self, now: float, rate: float, backlog: float) -> None:
        self._at, self._rate, self._backlog = now, rate, backlog

    def _others(self) -> float:
        """How many tokens come from everybody for one that comes from here."""
        return min(_MOST_OTHERS, max(1.0, self._counted_rate / self._rate)) if self._rate else 1.0

    def _counted(self, now: float) -> float:
        if not self._counted_rate:
            return self._counter
        # Between two readings it is taken to go on as it went, a few seconds at most: the server may have fallen silent.
        return self._counter + self._counted_rate * min(MEMORY_S, max(0.0, now - self._counter_at))

    def _faded(self, now: float) -> float:
        return self._rate * math.exp((self._at - now) / MEMORY_S) if self._rate else 0.0
