"""Prompt tokens on their way through one replica: how many wait to be computed, and how many come per second.

A server computes prompts between the tokens of all answers that it is making, so both lengthen what comes next. What this
worker sends is known at once; what others send only the server's own figures tell, whenever they are read.

So the tokens that wait are two heaps. One's own: each prompt adds its tokens, and they go at the rate that others leave of
the server, 1 - rho_o (rho: the share of the server's time that prompts take; o: others', w: one's own). The others': only
its mean is known. It follows dv/dt = rho_o - (1 - rho_w) v / (v + r), where r = E[S^2] / 2E[S] of a prompt's time S: the
fluid approximation that rests where Pollaczek and Khinchine's formula does (W. Wang, D. Tipper, S. Banerjee, "A simple
approximation for modeling nonstationary queues", INFOCOM 1996), at rho_o r / (1 - rho). With one's own mean by the same
formula, rho_w r / (1 - rho), both together are the M/G/1 queue's rho r / (1 - rho); without others the first alone is left.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

MEMORY_S = 5.0
"""Over how long a rate is taken: shorter than an answer, so that a change is seen before the answers end."""
SHARE_MEMORY_S = 60.0
"""Over how long others' share is taken: it changes as workers come and go, and a prompt half counted must not look like it."""
_LENGTHS_KEEP = 0.95
_LONG_S = 1e6


class Mark(NamedTuple):
    """A moment: prompt tokens that had been sent from here, and that the server had counted."""

    own: float = 0.0
    counted: float = 0.0
    """What the counter says once all that had been sent is computed."""
    at: float = -math.inf


BEGINNING: Final = Mark()
"""Before anything was sent."""


class Prompts:
    """The prompt tokens of one replica. The caller brings the clock; memory does not grow.

    `per_token_s` is always the seconds of the replica that one prompt token takes.
    """

    __slots__ = (
        "_all_sum",
        "_at",
        "_backlog",
        "_counted_rate",
        "_counter",
        "_counter_at",
        "_done",
        "_length",
        "_others",
        "_others_backlog",
        "_own",
        "_own_sum",
        "_rate",
        "_rest",
        "_square",
    )

    def __init__(self) -> None:
        self._at = -math.inf
        self._rate = 0.0
        self._own = 0.0
        self._backlog = 0.0
        self._others_backlog = 0.0
        self._counter = 0.0
        self._counter_at = -math.inf
        self._counted_rate = 0.0
        self._done = 0.0
        """One's own tokens that were computed when the counter was read."""
        self._all_sum = self._own_sum = 0.0
        """Tokens that were computed lately: everybody's by the counter, and one's own."""
        self._others = 0.0
        """Tokens/s that came from others when the counter was read."""
        self._length = self._square = 0.0
        """Mean of the computed prompts' tokens, and of their square."""
        self._rest = 0.0
        """Tokens that are left, on average, of a prompt that is being computed."""

    def send(self, now: float, tokens: float, per_token_s: float) -> float:
        """Note a prompt that is sent now; return the tokens ahead of it that are not computed yet."""
        own, others = self._waiting(now, per_token_s)
        self._move(now, self._faded(now) + tokens / MEMORY_S, own + tokens, others)
        self._own += tokens
        return own + others

    def computed(self, now: float, tokens: float, mark: Mark, per_token_s: float) -> None:
        """Note that the prompt sent at `mark` was computed, so what came before it was: only later ones can wait.

        However wrong `per_token_s` is, no backlog outlives the requests that it is made of.
        """
        own, others = self._waiting(now, per_token_s)
        since = self._others_rate(now) * (now - mark.at) if others else 0.0
        self._move(now, self._faded(now), min(own, max(0.0, self._own - mark.own)), min(others, since))
        keep = _LENGTHS_KEEP if self._length else 0.0
        self._length += (1.0 - keep) * (tokens - self._length)
        self._square += (1.0 - keep) * (tokens * tokens - self._square)
        self._rest = self._square / (2.0 * self._length) if self._length else 0.0

    def take_back(self, now: float, tokens: float, sent: float, per_token_s: float) -> None:
        """Note that a prompt sent at `sent` won't be computed: it was refused, or its server or client went away."""
        own, others = self._waiting(now, per_token_s)
        rate = max(0.0, self._faded(now) - tokens / MEMORY_S * math.exp(min(0.0, sent - now) / MEMORY_S))
        self._move(now, rate, max(0.0, own - tokens), others)
        self._own -= tokens

    def backlog(self, now: float, per_token_s: float) -> float:
        """Return the tokens that are not computed yet."""
        if per_token_s <= 0.0:
            return 0.0
        own, others = self._waiting(now, per_token_s)
        return own + others

    def rate(self, now: float) -> float:
        """Return the prompt tokens/s that come to the replica from everybody."""
        # Of a server whose counter cannot be read any more nobody knows: what it told fades.
        counted, silent = self._counted_rate, now - self._counter_at - MEMORY_S
        return max(self._faded(now), counted * math.exp(-silent / MEMORY_S) if counted and silent > 0.0 else counted)

    def mark(self, now: float, waiting: float = 0.0) -> Mark:
        """Return what to compare a later moment with; `waiting`: tokens sent before, not computed yet and so not counted."""
        return Mark(self._own, self._counted(now) + waiting, now)

    def since(self, mark: Mark, now: float) -> float:
        """Return the prompt tokens that came since then, from everybody."""
        return max(0.0, self._own - mark.own, self._counted(now) - mark.counted)

    def count(self, now: float, counter: float, per_token_s: float, waiting: float) -> None:
        """Take in the server's counter of prompt tokens; one that fell belongs to a server that began anew.

        `waiting`: everybody's requests whose prompts wait for nothing but those before them.
        """
        if not math.isfinite(counter):
            return
        own, others = self._waiting(now, per_token_s)
        passed, done = now - self._counter_at, self._own - own
        if 0.0 < passed < math.inf:
            came = counter - self._counter if counter >= self._counter else counter
            keep = math.exp(-passed / MEMORY_S)
            self._counted_rate = self._counted_rate * keep + came / passed * (1.0 - keep)
            keep = math.exp(-passed / SHARE_MEMORY_S)
            self._all_sum = self._all_sum * keep + came
            self._own_sum = self._own_sum * keep + done - self._done
            share = 1.0 - self._own_sum / self._all_sum if self._all_sum > 0.0 else 0.0
            self._others = self._counted_rate * min(1.0, max(0.0, share))
        self._counter, self._counter_at, self._done = counter, now, done
        if not self._others:
            others = 0.0
        else:
            # Those that wait, and the one that is being computed, if it is another's (Pollaczek and Khinchine's sum).
            others = max(0.0, waiting * self._length - own) + min(1.0, self._others * per_token_s) * self._rest
        self._move(now, self._faded(now), own, others)

    def _waiting(self, now: float, per_token_s: float) -> tuple[float, float]:
        """Return the tokens that wait: one's own, and others'."""
        own, heap = self._backlog, self._others_backlog
        if per_token_s <= 0.0:
            return own, heap
        others, passed = self._others_rate(now), now - self._at
        if not others and not heap:
            return (max(0.0, own - passed / per_token_s) if own else 0.0), 0.0
        if passed <= 0.0:
            return own, heap
        passed, room = min(passed, _LONG_S), 1.0 / per_token_s
        rate = self._faded(now)
        if rate + others <= room:
            # One's own get what others leave, and they what one's own leave; of a server that is asked for too much
            # each gets its share.
            left, left_others = room - others, room - rate
        else:
            left, left_others = room * rate / (rate + others), room * others / (rate + others)
        own = max(0.0, own - passed * left) if own else 0.0
        # One implicit Euler step, a square equation: it comes to rest where the differential equation does.
        come, rest = heap + passed * others, self._rest
        half = (come - rest - passed * left_others) / 2.0
        root = math.hypot(half, math.sqrt(come * rest))
        # The same root twice, so that no two numbers that are almost alike are taken from each other.
        return own, half + root if half > 0.0 else come * rest / (root - half) if root else 0.0

    def _others_rate(self, now: float) -> float:
        others, silent = self._others, now - self._counter_at - MEMORY_S
        return others * math.exp(-silent / MEMORY_S) if others and silent > 0.0 else others

    def _move(self, now: float, rate: float, own: float, others: float) -> None:
        self._at, self._rate, self._backlog, self._others_backlog = now, rate, own, others

    def _counted(self, now: float) -> float:
        if not self._counted_rate:
            return self._counter
        # Between two readings it is taken to go on as it went, a few seconds at most: the server may have fallen silent.
        return self._counter + self._counted_rate * min(MEMORY_S, max(0.0, now - self._counter_at))

    def _faded(self, now: float) -> float:
        return self._rate * math.exp((self._at - now) / MEMORY_S) if self._rate else 0.0
