"""One key in one worker: its record, what it may still spend of its limits, and the headers that say so."""

from __future__ import annotations

import math

from router.keys.pace import NEARLY, Pace, Usage
from router.keys.places import Claim
from router.keys.record import KeyRecord


class Allowance:
    """A key's limits and what was used of them; with a `last` one of the same key its counts go on."""

    __slots__ = ("_limits", "_requests", "_tokens", "_told_as", "claim", "name", "record")

    def __init__(self, name: str, record: KeyRecord, last: Allowance | None = None) -> None:
        self.name = name
        self.record = record
        self.claim: Claim = last.claim if last is not None else Claim()
        self._requests: Usage = last._requests if last is not None else Usage()
        self._tokens: Usage = last._tokens if last is not None else Usage()
        self._told_as = f"tokens:{record.sha256}"
        limits = (
            (b"requests", self._requests, record.requests_per_minute),
            (b"tokens", self._tokens, record.tokens_per_minute),
        )
        self._limits = [_Told(what, usage, limit) for what, usage, limit in limits if limit is not None]

    @property
    def limited(self) -> bool:
        """Whether `headers` has anything to tell."""
        return bool(self._limits)

    def take_request(self, pace: Pace, now: float) -> float:
        """Take one request of the key's rate; return 0, or the seconds after which there is room for it."""
        limit = self.record.requests_per_minute
        if limit is None:
            return 0.0
        wait_s = self._requests.take(pace.allowed(limit), now)
        if wait_s == 0.0:
            pace.mark(self.record.sha256, self._requests, limit)
        return wait_s

    def give_back_request(self, pace: Pace) -> None:
        """A request that was taken was refused all the same."""
        limit = self.record.requests_per_minute
        if limit is not None:
            self._requests.spend(-1.0)
            pace.mark(self.record.sha256, self._requests, limit)

    def debt_s(self, pace: Pace, now: float) -> float:
        """Return the seconds until the key's debt of tokens is paid back, a day at most; 0: it has none."""
        limit = self.record.tokens_per_minute
        if limit is None:
            return 0.0
        wait_s = self._tokens.wait_s(pace.allowed(limit), 0.0, now)
        if wait_s > 0.0:
            # To be heard again: other workers may have given back or spent since, and this one has nothing to tell.
            pace.mark(self._told_as, self._tokens, limit)
        return wait_s

    def spend_tokens(self, amount: float, pace: Pace, now: float) -> None:
        """Spend so many tokens, below 0: give them back."""
        limit = self.record.tokens_per_minute
        if limit is not None and amount:
            self._tokens.level(pace.allowed(limit), now)
            self._tokens.spend(amount)
            pace.mark(self._told_as, self._tokens, limit)

    def headers(self, pace: Pace, now: float) -> list[tuple[bytes, bytes]]:
        """Return `x-ratelimit-...` of the limits that the key has, in the words of OpenAI's API.

        `remaining` is what may be spent at once, `reset` the time until that is as much as it can be, a day at most.
        """
        return [header for told in self._limits for header in told.headers(pace, now)]


class _Told:
    """One limit's headers; what never changes of them is made once."""

    __slots__ = ("_limit", "_remaining", "_reset", "_usage", "_whole")

    def __init__(self, what: bytes, usage: Usage, limit: float) -> None:
        self._usage = usage
        self._whole = limit
        self._limit = (b"x-ratelimit-limit-" + what, b"%.15g" % limit)
        self._remaining = b"x-ratelimit-remaining-" + what
        self._reset = b"x-ratelimit-reset-" + what

    def headers(self, pace: Pace, now: float) -> tuple[tuple[bytes, bytes], ...]:
        allowed, usage = pace.allowed(self._whole), self._usage
        reset_s = usage.wait_s(allowed, usage.bucket(allowed)[1], now)
        left = int(max(0.0, usage.level(allowed, now) + NEARLY))
        return self._limit, (self._remaining, b"%d" % left), (self._reset, duration(reset_s).encode())


def duration(seconds: float) -> str:
    """Return a time as OpenAI's API writes it: `350ms`, `2.5s`, `6m0s`, `1h0m30s`; rounded up."""
    thousandths = math.ceil(round(seconds * 1000, 3))
    if thousandths < 1000:
        return f"{thousandths}ms"
    minutes, rest = divmod(thousandths, 60_000)
    hours, minutes = divmod(minutes, 60)
    head = f"{hours}h{minutes}m" if hours else f"{minutes}m" if minutes else ""
    return f"{head}{rest / 1000:g}s"


__all__ = ["Allowance", "duration"]
