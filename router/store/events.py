"""Events into a Redis stream, beside the hot path: putting one never waits, never raises, and memory stays bounded.

Each entry has one field (`event`, where nothing else is said) with JSON. A batch is one transaction together with a marker of how far this sink
has come, so a batch whose answer was lost is not written twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import orjson
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeout

from router.config.problems import masked
from router.config.schema import EventsConfig
from router.stopping import end
from router.store.client import open_client

log = logging.getLogger(__name__)

BATCH = 64
"""Events in one transaction; packing them holds the loop for about a millisecond."""
LINGER_S = 0.1
"""Wait for company before an event is written, seconds: each batch costs far more than each of its events."""
LONGEST_EVENT = 32 * 1024
"""Bytes of JSON; a longer event is dropped, so that the buffer's memory is bounded too."""
FIRST_PAUSE_S = 0.25
LONGEST_PAUSE_S = 10.0
_MARKER_TTL_S = 3600

State = Literal["starting", "up", "down", "off", "stopped"]


@dataclass(frozen=True)
class SinkStats:
    """Counts since the start."""

    written: int
    dropped: int
    buffered: int
    state: State
    """starting: no answer yet; up; down: Redis is away, events are kept; off: nothing is kept; stopped."""
    index_failed: int = 0
    """Index entries that were not kept (no room, or Redis did not take them): nobody can give feedback on these."""


Index = Callable[[Mapping[str, object]], "tuple[str, bytes, int] | None"]
"""From an event to (name, value, seconds to live) of a key by which it is found later, or None."""


def compact(made: bytes) -> bytes:
    """Return a copy that takes no more memory than its bytes: what orjson gives back keeps the buffer that it was written
    into, up to 16 KiB, for as long as it is kept."""
    return memoryview(made).tobytes()


class EventSink:
    """A bounded buffer, and one task that empties it into a stream.

    `url` is None where there is no Redis: then, and when events are disabled and there is no index, `put` does nothing.
    """

    def __init__(
        self,
        url: str | None,
        settings: EventsConfig,
        *,
        timeout_s: float = 0.5,
        password: str | None = None,
        index: Index | None = None,
        field: str = "event",
    ) -> None:
        self._url = url
        self._settings = settings
        self._timeout_s = timeout_s
        self._password = password
        self._index = index
        self._field = field
        self._index_failed = 0
        self._buffer: deque[tuple[bytes, tuple[str, bytes, int] | None]] = deque()
        self._wake = asyncio.Event()
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._client: Redis | None = None
        # The braces keep stream and marker in one slot of a cluster.
        self._marker = f"{{{settings.stream}}}:sink:{secrets.token_hex(8)}"
        self._batches = 0
        self._uncertain = 0
        """Events of a batch whose answer was lost: the same batch must be tried again."""
        self._used = False
        self._written = 0
        self._dropped = 0
        self._state: State = "starting" if url and (settings.enabled or index is not None) else "off"

    def put(self, event: Mapping[str, object]) -> None:
        """Keep one event for writing; when that cannot be done it is counted as dropped. Never waits or raises."""
        if self._state == "off":
            return
        entry = self._entry(event)
        if not self._settings.enabled:
            self._keep(b"", entry)
            return
        try:
            data = compact(
                orjson.dumps(event, default=str, option=orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY)
            )
        except Exception:
            # Whatever an event holds, the request that made it goes on.
            data = b""
        if not 0 < len(data) <= LONGEST_EVENT:
            self._dropped += 1
            data = b""
        self._keep(data, entry)

    def put_index(self, event: Mapping[str, object]) -> None:
        """Keep only the index entry of a request whose event is left out. Never waits or raises."""
        if self._state != "off":
            self._keep(b"", self._entry(event))

    def follow(self, settings: EventsConfig) -> None:
        """Take over the limits of a changed configuration; name of the stream and `enabled` stay as they began."""
        began = self._settings
        self._settings = settings.model_copy(update={"stream": began.stream, "enabled": began.enabled})

    def _entry(self, event: Mapping[str, object]) -> tuple[str, bytes, int] | None:
        try:
            return self._index(event) if self._index is not None else None
        except Exception:
            self._index_failed += 1
            return None

    def _keep(self, data: bytes, entry: tuple[str, bytes, int] | None) -> None:
        if not data and entry is None:
            return
        if self._state == "stopped" or len(self._buffer) >= self._settings.buffer:
            self._dropped += bool(data)
            self._index_failed += entry is not None
            return
        self._buffer.append((data, entry))
        self._wake.set()

    def stats(self) -> SinkStats:
        """Counts as of now."""
        return SinkStats(self._written, self._dropped, len(self._buffer), self._state, self._index_failed)

    def start(self) -> None:
        """Begin to write, in a task of the running loop. Redis need not be there."""
        if self._task is None and self._state == "starting":
            self._task = asyncio.create_task(self._run(), name="events")

    async def stop(self, deadline_s: float = 2.0) -> None:
        """Write what is kept, for at most `deadline_s` seconds; the rest counts as dropped."""
        self._stopping.set()
        self._wake.set()
        if self._task is not None:
            _, late = await asyncio.wait([self._task], timeout=deadline_s)
            await end(late)
        await self._close()
        self._dropped += sum(bool(data) for data, _ in self._buffer)
        self._index_failed += sum(entry is not None for _, entry in self._buffer)
        self._buffer.clear()
        if self._state != "off":
            self._state = "stopped"

    async def _run(self) -> None:
        pause = FIRST_PAUSE_S
        while True:
            # Once it is to stop, nobody will wake it again.
            if not self._buffer and self._state == "up" and not self._stopping.is_set():
                await self._wake.wait()
            self._wake.clear()
            if self._stopping.is_set() and not self._buffer:
                return
            if len(self._buffer) < BATCH:
                await self._wait(LINGER_S)
            failure = await self._attempt()
            if failure is not None and self._used:
                # A connection that was idle may have been closed in good order: a new one is worth one try.
                await self._close()
                failure = await self._attempt()
            if failure is None:
                pause = FIRST_PAUSE_S
                self._change("up", "")
                continue
            self._change("down", failure)
            await self._close()
            if self._stopping.is_set():
                return
            await self._wait(pause)
            pause = min(pause * 2, LONGEST_PAUSE_S)

    async def _wait(self, seconds: float) -> None:
        """Pause, but not once the sink is to stop."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()

    async def _attempt(self) -> str | None:
        """Write one batch (or just greet, when there is none). Gives the reason of a failure."""
        batch = [self._buffer[i] for i in range(self._uncertain or min(BATCH, len(self._buffer)))]
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._write(batch)
        except (TimeoutError, RedisTimeout):
            # A server that hangs is not asked a second time at once.
            self._used = False
            return f"no answer in {self._timeout_s:g} s"
        except ResponseError as error:
            # The server refused the events but may have set the marker: nothing is uncertain, the marker moves on.
            self._uncertain = 0
            self._batches += 1
            return str(error)
        except (RedisError, OSError, ValueError) as error:
            return masked(str(error)) or type(error).__name__
        self._used = True
        for _ in batch:
            self._buffer.popleft()
        self._written += sum(bool(data) for data, _ in batch)
        return None

    async def _write(self, batch: list[tuple[bytes, tuple[str, bytes, int] | None]]) -> None:
        if self._client is None:
            self._client = self._connect(self._url or "")
        if not batch:
            await self._client.ping()
            return
        if self._uncertain and await self._client.get(self._marker) == str(self._batches + 1).encode():
            self._batches += 1
            self._uncertain = 0
            return
        await self._write_index([entry for _, entry in batch if entry is not None])
        if not any(data for data, _ in batch):
            return
        settings = self._settings
        async with self._client.pipeline(transaction=True) as pipe:
            for data, _ in batch:
                if data:
                    pipe.xadd(settings.stream, {self._field: data}, maxlen=settings.max_length, approximate=True)
            pipe.set(self._marker, str(self._batches + 1), ex=_MARKER_TTL_S)
            self._uncertain = len(batch)
            await pipe.execute()
        self._batches += 1
        self._uncertain = 0

    async def _write_index(self, entries: list[tuple[str, bytes, int]]) -> None:
        # Apart from the events' transaction: these keys may be in other slots, and writing one twice does no harm.
        if not entries or self._client is None:
            return
        async with self._client.pipeline(transaction=False) as pipe:
            for name, value, ttl_s in entries:
                pipe.set(name, value, ex=ttl_s)
            answers = await pipe.execute(raise_on_error=False)
        self._index_failed += sum(isinstance(answer, Exception) for answer in answers)

    def _connect(self, url: str) -> Redis:
        # One try: the pause between tries is this sink's own.
        return open_client(
            url, password=self._password, timeout_s=self._timeout_s, retry=Retry(NoBackoff(), 0), max_connections=1
        )

    async def _close(self) -> None:
        """Forget the connection: after a failure there may be an answer on its way that belongs to nobody."""
        client, self._client, self._used = self._client, None, False
        if client is None:
            return
        with contextlib.suppress(TimeoutError, RedisError, OSError):
            async with asyncio.timeout(self._timeout_s):
                await client.aclose(close_connection_pool=True)

    def _change(self, state: State, reason: str) -> None:
        before, self._state = self._state, state
        if before == state:
            return
        where = masked(self._url or "")
        if state == "down":
            log.warning("events: %s is away (%s); keeping up to %d events", where, reason, self._settings.buffer)
        elif before == "down":
            log.info("events: %s is back; %d events dropped so far", where, self._dropped)


__all__ = ["EventSink", "SinkStats"]
