"""`POST /v1/feedback`: a statement finds its request in Redis and goes into the feedback stream, or is refused plainly.

The last statement of a kind holds: a different one replaces the one before, the same one again changes nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import orjson
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from router.cache.sentinel import is_sentinel
from router.config.loop import FeedbackConfig
from router.feedback.entry import FIELD, label_entry
from router.feedback.index import LATE_S, index_key
from router.feedback.statement import Statement, too_late, unknown_request
from router.proxy.errors import ApiError
from router.store.client import open_client

_GIVEN = "bitgear:given"
_MOST_SOURCES = 16
"""Different statements about one request: thumbs, score, and that many metrics less two."""
_MOST_STATEMENTS = 64
"""Statements about one request, changes of mind included: the stream keeps so many entries, whoever fills it."""
_CONNECTIONS = 4
_PATIENCE_S = (0.0, 0.05, 0.15, 0.3)
"""Pauses before each look-up of a request: its index entry is written a moment after its answer."""

_MOST_WAITS = 4
MOST_AT_ONCE = 64
"""Statements that one worker takes at once; more would only wait for the few connections."""


class Receipt(NamedTuple):
    """What became of a statement."""

    group: str
    kind: str
    changed: bool
    """False where the same was said before."""
    times: int
    """Different statements of this kind so far."""


class Inbox:
    """Takes statements; connects to Redis with the first one."""

    def __init__(
        self,
        url: str | None,
        settings: FeedbackConfig,
        *,
        timeout_s: float = 0.5,
        password: str | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._url = url
        self.settings = settings
        """Those in force; replaced when they change."""
        self._timeout_s = timeout_s
        self._password = password
        self._clock = clock
        self._client: Redis | None = None
        self._taking = 0

    async def take(self, statement: Statement, tenant: str) -> Receipt:
        """Write a statement by the tenant who made the request.

        Raises ApiError: 404 for a request that is unknown to this tenant, 410 when it is too late, 400 for too many
        statements or kinds of them, 429 while too much is said at once, 503 while Redis is away: then nothing was kept.
        """
        if self._url is None or not self.settings.enabled:
            raise ApiError(404, "Feedback is not taken here: it is disabled or has no Redis.", None, "feedback_off")
        if self._taking >= MOST_AT_ONCE:
            raise ApiError(429, "Too much feedback at once; try again later.", None, "too_much_feedback", 1.0)
        self._taking += 1
        try:
            # Each command has its own time; this bounds them together.
            async with asyncio.timeout(_MOST_WAITS * self._timeout_s + sum(_PATIENCE_S)):
                return await self._take(statement, tenant)
        except (RedisError, OSError, TimeoutError):
            raise ApiError(
                503, "Feedback cannot be kept now: Redis is away.", None, "feedback_unavailable", 2.0
            ) from None
        finally:
            self._taking -= 1

    async def _take(self, statement: Statement, tenant: str) -> Receipt:
        client = self._connected()
        facts = await self._find(client, statement.request_id, tenant)
        now = self._clock()
        if now - facts["t"] > self.settings.window_s:
            raise too_late(self.settings.window_s)
        given = f"{_GIVEN}:{tenant}:{statement.request_id}"
        before: dict[bytes, bytes] = await cast("Any", client.hgetall(given))
        mine = orjson.dumps([facts["t"], statement.value, statement.comment])
        source = statement.source.encode()
        told = [orjson.loads(v) for v in (before.get(source),) if v]
        # The same id may have been used for another request since.
        count = told[0][0] if told and told[0][1][0] == facts["t"] else 0
        if count and orjson.dumps(told[0][1]) == mine:
            return Receipt(facts["group"], statement.kind, False, count)
        if source not in before and len(before) >= _MOST_SOURCES:
            raise ApiError(400, "metric.name: too many different statements about one request", "metric.name")
        said = [orjson.loads(v) for v in before.values()]
        if sum(times for times, (t, *_) in said if t == facts["t"]) >= _MOST_STATEMENTS:
            words = (
                f"request_id: {_MOST_STATEMENTS} statements about one answer are taken, and were; the last ones hold"
            )
            raise ApiError(400, words, "request_id", "too_many_statements")
        entry = label_entry(facts, statement.source, statement.value, now, key=tenant, comment=statement.comment)
        settings = self.settings
        async with client.pipeline(transaction=False) as pipe:
            pipe.xadd(settings.stream, {FIELD: orjson.dumps(entry)}, maxlen=settings.max_length, approximate=True)
            pipe.hset(given, statement.source, orjson.dumps([count + 1, orjson.loads(mine)]).decode())
            pipe.expire(given, round(settings.window_s) + LATE_S)
            await pipe.execute()
        return Receipt(facts["group"], statement.kind, True, count + 1)

    async def _find(self, client: Redis, request_id: str, tenant: str) -> dict[str, Any]:
        for pause in _PATIENCE_S:
            await asyncio.sleep(pause)
            found = await client.get(index_key(tenant, request_id))
            if found is not None:
                facts: dict[str, Any] = orjson.loads(found)
                return facts
        raise unknown_request(request_id)

    def _connected(self) -> Redis:
        if self._client is None and is_sentinel(self._url or ""):
            # redis-py has no pool that both waits and follows a master: the connections' number is not bounded here.
            self._client = open_client(
                self._url or "", password=self._password, timeout_s=self._timeout_s, retry=Retry(NoBackoff(), 1)
            )
        if self._client is None:
            options: dict[str, Any] = {"password": self._password} if self._password else {}
            pool = BlockingConnectionPool.from_url(
                self._url or "",
                max_connections=_CONNECTIONS,
                timeout=self._timeout_s,
                socket_timeout=self._timeout_s,
                socket_connect_timeout=self._timeout_s,
                # A connection that was idle may have been closed: one more try.
                retry=Retry(NoBackoff(), 1),
                **options,
            )
            self._client = Redis(connection_pool=pool)
        return self._client

    async def stop(self) -> None:
        """Close the connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose(close_connection_pool=True)
