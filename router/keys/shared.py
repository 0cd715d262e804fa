"""Rates of API keys that all workers count together: each reports what it let through, beside the requests.

No request waits for Redis. A worker lets requests through by its own view of a key's budget, tells Redis within
`PAUSE_S` how many those were, and gets the budget of all workers back as its new view. What several let through before
they heard of each other is a debt that all pay back: bursts may be larger than allowed, the rate over time may not.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Callable

from redis.asyncio import Redis
from redis.exceptions import RedisError

from router.config.problems import masked
from router.keys.pace import Pace, Usage

PREFIX = "bitgear:rate"
WORKERS = "bitgear:workers"
PAUSE_S = 0.05
"""Least time between two reports, seconds."""
BEAT_S = 2.0
_ALIVE_S = 10
_MOST = 256
"""Keys in one report."""

_SPEND = """
local kept = redis.call('HMGET', KEYS[1], 'tokens', 'at')
local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1000000
local rate, most = tonumber(ARGV[1]), tonumber(ARGV[2])
local tokens, at = tonumber(kept[1]) or most, tonumber(kept[2]) or now
tokens = math.min(most, tokens + math.max(0, now - at) * rate) - tonumber(ARGV[3])
redis.call('HSET', KEYS[1], 'tokens', string.format('%.6f', tokens), 'at', string.format('%.6f', now))
redis.call('PEXPIRE', KEYS[1], math.ceil((most - tokens) / rate * 1000) + 1000)
return string.format('%.6f', tokens)
"""
"""Token bucket of one key; forgotten when it is full again."""
_BEAT = """
local now = tonumber(redis.call('TIME')[1])
redis.call('ZADD', KEYS[1], now, ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - tonumber(ARGV[2]))
redis.call('EXPIRE', KEYS[1], 60)
return redis.call('ZCARD', KEYS[1])
"""


class SharedRates:
    """One worker's reports. `client` None: there is no Redis, and each worker keeps its share of every limit."""

    def __init__(
        self,
        client: Redis | None,
        pace: Pace,
        log: logging.Logger,
        *,
        timeout_s: float = 0.5,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._pace = pace
        self._log = log
        self._timeout_s = timeout_s
        self._clock = clock
        self._name = secrets.token_hex(8)
        self._beat_at = -BEAT_S
        self._up: bool | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to report, in a task of the running loop."""
        if self._client is not None and self._task is None:
            self._task = asyncio.create_task(self._run(), name="key rates")

    async def stop(self) -> None:
        """End the task and close the connection."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None
        if self._client is not None:
            with contextlib.suppress(RedisError, OSError, TimeoutError):
                await self._client.aclose(close_connection_pool=True)

    async def sync(self) -> None:
        """Report now; an unreachable Redis is noted, never raised."""
        if self._client is None:
            return
        spent = self._pace.take(_MOST)
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._tell(self._client, spent)
        except (RedisError, OSError, TimeoutError) as error:
            # Said again later; what was perhaps counted already is then counted twice, never left out.
            for name, (usage, per_minute) in spent.items():
                self._pace.mark(name, usage, per_minute)
            self._change(False, masked(str(error)) or type(error).__name__)
        else:
            self._change(True, "")

    async def _tell(self, client: Redis, spent: dict[str, tuple[Usage, float]]) -> None:
        now = self._clock()
        beats = now - self._beat_at >= BEAT_S
        if not spent and not beats:
            return
        told = {name: usage.spent for name, (usage, _) in spent.items()}
        async with client.pipeline(transaction=False) as pipe:
            for name, (usage, per_minute) in spent.items():
                rate, most = usage.bucket(per_minute)
                pipe.eval(_SPEND, 1, f"{PREFIX}:{name}", f"{rate:.9f}", f"{most:.6f}", str(told[name]))
            if beats:
                pipe.eval(_BEAT, 1, WORKERS, self._name, str(_ALIVE_S))
            answers = await pipe.execute()
        for (name, (usage, _)), tokens in zip(spent.items(), answers, strict=False):
            usage.heard(float(tokens), told[name], self._clock())
        if beats:
            self._beat_at = now
            self._pace.workers = max(1, int(answers[-1]))

    async def _run(self) -> None:
        while True:
            self._pace.wake.clear()
            await self.sync()
            await asyncio.sleep(PAUSE_S if self._up else BEAT_S / 2)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(BEAT_S):
                    await self._pace.wake.wait()

    def _change(self, up: bool, why: str) -> None:
        before, self._up = self._up, up
        self._pace.shared = up
        if before is up:
            return
        if not up:
            share = f"1/{self._pace.workers}"
            self._log.warning("key rates: Redis is away (%s); this worker keeps %s of each key's rate", why, share)
        elif before is False:
            self._log.info("key rates: Redis is back")


__all__ = ["PAUSE_S", "SharedRates"]
