"""Limits of API keys that all workers keep together: each tells what it let through and what it runs, beside the requests.

Requests and tokens a minute: a worker lets requests through by its own view of a key's budget, tells Redis within
`PAUSE_S` what they cost, or what was given back of it, and gets the budget of all workers back as its new view; no
request waits for that. What several let through before they heard of each other is a debt that all pay back: bursts may
be larger than allowed, the rate over time may not. Requests at once: see `router.keys.places`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import secrets
import time
from collections.abc import Callable
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import RedisError

from router.background import Background
from router.config.problems import masked
from router.keys.ledger import ALIVE_S, BEAT, CLAIM, WORKERS, claim_answers, claim_arguments
from router.keys.pace import Usage
from router.keys.places import AGAIN_S, RETRY_S, Claim, Claims

PREFIX = "bitgear:rate"
PAUSE_S = 0.05
"""Least time between two reports that no request waits for, seconds."""
URGENT_S = 0.005
"""Least time between any two reports."""
BEAT_S = 2.0
SETTLE_S = BEAT_S + 1.0
"""When Redis was away or lost its data, all have told again what they run after so long."""
_MOST = 256
"""Keys in one report."""

_SPEND = """
local kept = redis.call('HMGET', KEYS[1], 'tokens', 'at')
local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1000000
local rate, most = tonumber(ARGV[1]), tonumber(ARGV[2])
local tokens, at = tonumber(kept[1]) or most, tonumber(kept[2]) or now
tokens = math.min(most, tokens + math.max(0, now - at) * rate)
tokens = math.min(most, tokens - tonumber(ARGV[3]))
redis.call('HSET', KEYS[1], 'tokens', string.format('%.6f', tokens), 'at', string.format('%.6f', now))
redis.call('PEXPIRE', KEYS[1], string.format('%.0f', math.min(tonumber(ARGV[4]), (most - tokens) / rate * 1000 + 1001)))
return string.format('%.6f', tokens)
"""
"""Token bucket of one limit of a key; forgotten when it is full again."""
_LONGEST_MS = 366 * 86_400_000
"""Nothing is kept longer than that."""


class SharedLimits:
    """One worker's reports. `client` None: there is no Redis, and each worker keeps its share of every limit."""

    def __init__(
        self,
        client: Redis | None,
        claims: Claims,
        log: logging.Logger,
        *,
        timeout_s: float = 0.5,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._pace = claims.pace
        self._claims = claims
        self._log = log
        self._timeout_s = timeout_s
        self._clock = clock
        self._name = secrets.token_hex(8)
        self._beat_at = -math.inf
        self._up: bool | None = None
        self._task = Background("key limits")

    async def start(self) -> None:
        """Hear of the others, then report in a task of the running loop: the first requests count for all too."""
        if self._client is not None:
            await self.sync()
            self._task.start(self._run)

    async def stop(self) -> None:
        """End the task, tell the last, take this worker's claims back, and close the connection."""
        await self._task.stop()
        if self._up:
            # What the last answers cost is known only since they ended.
            await self.sync()
        self._pace.shared = False
        self._claims.unheard({})
        if self._client is not None:
            with contextlib.suppress(RedisError, OSError, TimeoutError):
                async with asyncio.timeout(self._timeout_s):
                    await self._client.zrem(WORKERS, self._name)
            with contextlib.suppress(RedisError, OSError, TimeoutError):
                await self._client.aclose(close_connection_pool=True)

    async def sync(self) -> None:
        """Report now; an unreachable Redis is noted, never raised."""
        if self._client is None:
            return
        spent = self._pace.take(_MOST)
        claims = self._claims.due(_MOST)
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._tell(self._client, spent, claims)
        except asyncio.CancelledError:
            self._tell_later(spent)
            raise
        except Exception as error:
            # Whatever it is: no request may wait for an answer that never comes.
            if not isinstance(error, RedisError | OSError | TimeoutError):
                self._log.exception("key limits: a report failed")
            self._tell_later(spent)
            self._change(False, masked(str(error)) or type(error).__name__)
            self._claims.unheard(claims)
        else:
            self._change(True, "")

    def _tell_later(self, spent: dict[str, tuple[Usage, float]]) -> None:
        # What was perhaps counted already is then counted twice, never left out.
        for name, (usage, per_minute) in spent.items():
            usage.forgive(per_minute, self._pace.allowed(per_minute), self._clock())
            self._pace.mark(name, usage, per_minute)

    async def _tell(self, client: Redis, spent: dict[str, tuple[Usage, float]], claims: dict[str, Claim]) -> None:
        now = self._clock()
        beats = now - self._beat_at >= BEAT_S
        if not (spent or claims or beats):
            return
        told = {name: usage.spent for name, (usage, _) in spent.items()}
        places = {name: claim.tell(self._pace, now) for name, claim in claims.items()}
        async with client.pipeline(transaction=False) as pipe:
            if beats:
                # First: what a worker claims counts while it is known to live.
                pipe.eval(BEAT, 1, WORKERS, self._name, str(ALIVE_S))
            if places:
                keys, arguments = claim_arguments(self._name, places.items())
                pipe.eval(CLAIM, len(keys), *keys, *arguments)
            for name, (usage, per_minute) in spent.items():
                rate, most = usage.bucket(per_minute)
                pipe.eval(_SPEND, 1, f"{PREFIX}:{name}", repr(rate), repr(most), f"{told[name]:.6f}", str(_LONGEST_MS))
            answers: list[Any] = await pipe.execute()
        if beats:
            self._lives(now, *answers.pop(0))
        if places:
            for (name, entry), heard in zip(places.items(), claim_answers(answers.pop(0)), strict=True):
                self._claims.heard(name, claims[name], entry, heard, now)
        for (name, (usage, _)), tokens in zip(spent.items(), answers, strict=True):
            usage.heard(float(tokens), told[name], self._clock())

    def _lives(self, now: float, workers: int, known: int) -> None:
        forgotten = not known and self._up is not None
        if forgotten:
            # Redis lost its data, or took this worker for dead: nobody's claims are whole until all have told them.
            self._pace.settled_at = now + SETTLE_S
        self._claims.again(math.inf if forgotten else now - AGAIN_S)
        self._beat_at = now
        self._pace.workers = max(1, workers)

    async def _run(self) -> None:
        while True:
            self._pace.wake.clear()
            self._pace.urgent.clear()
            await self.sync()
            if not self._up:
                await asyncio.sleep(BEAT_S / 2)
                continue
            await asyncio.sleep(URGENT_S)
            await _set(self._pace.urgent, RETRY_S if self._claims.asking else PAUSE_S)
            await _set(self._pace.wake, BEAT_S)

    def _change(self, up: bool, why: str) -> None:
        before, self._up = self._up, up
        self._pace.shared = up
        if before is up:
            return
        if not up:
            share = f"1/{self._pace.workers}"
            self._log.warning("key limits: Redis is away (%s); this worker keeps %s of each key's limits", why, share)
        elif before is False:
            self._pace.settled_at = self._clock() + SETTLE_S
            self._claims.again(math.inf)
            self._log.info("key limits: Redis is back")


async def _set(event: asyncio.Event, seconds: float) -> None:
    """Return when `event` is set, after so many seconds at the latest."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


__all__ = ["PAUSE_S", "SharedLimits"]
