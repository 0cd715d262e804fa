"""One HTTP/1.1 connection to a replica: a small asyncio.Protocol around httptools.

It carries one request at a time. Body pieces are handed on as they came; nothing is copied unless several pieces are
already there. When the reader is slow the socket is paused, so at most `HIGH_WATER` bytes (and one read) wait here.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable
from typing import NamedTuple, cast

import httptools

from backends.wire.errors import Failure, UpstreamError

HIGH_WATER = 256 * 1024
MAX_BARE = 256 * 1024
"""Bytes of an answer on end that are no body (its head, interim answers, trailers, chunks' extensions); a header is put
together piece by piece, which costs more than linearly."""
STALE_S = 1.0
"""A kept connection that closes this soon after a request was found closed; later, it died at work."""

_UNREAD_S = 0.05
"""A timer that is later than this is late because the process stood still; what is there then is read within as long."""


class Limits(NamedTuple):
    """Separate limits on one request, seconds."""

    connect_s: float = 2.0
    first_token_s: float = 120.0
    between_tokens_s: float = 60.0
    total_s: float = 900.0


class Connection(asyncio.Protocol):
    """A kept-alive connection; `send` begins a request, then `wait`, `take` and `done` read its answer."""

    __slots__ = (
        "_bare",
        "_bodiless",
        "_deadline",
        "_delimited",
        "_due",
        "_first",
        "_limit_s",
        "_loop",
        "_message_headers",
        "_parser",
        "_parts",
        "_paused",
        "_poll",
        "_queued",
        "_timer",
        "_wait_began",
        "_waiter",
        "closed",
        "done",
        "error",
        "headers",
        "idle_since",
        "keep_alive",
        "limits",
        "on_idle_close",
        "received",
        "reused",
        "status",
        "transport",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.transport: asyncio.Transport | None = None
        self._poll: select.poll | None = None
        self.closed = False
        self.reused = False
        self.idle_since = 0.0
        self.on_idle_close: Callable[[Connection], None] | None = None
        self.limits = Limits()
        self._reset()

    def _reset(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._parts: list[bytes] = []
        self._queued = 0
        self._bare = 0
        self._paused = False
        self._message_headers: list[tuple[bytes, bytes]] = []
        self._delimited = False
        self._bodiless = False
        self._first = True
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] | None = None
        self.keep_alive = True
        self.done = True
        self.error: UpstreamError | None = None
        self.received = False
        self._deadline = 0.0
        self._due = 0.0
        self._limit_s = 0.0
        self._wait_began = 0.0

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self.transport = cast("asyncio.Transport", transport)  # uvloop's transports are no subclass of asyncio's.

    def data_received(self, data: bytes) -> None:
        """Parse a piece of the answer."""
        if self.done:
            # A server that speaks unasked (for example a 408 before it closes) cannot be trusted with another request.
            self._close()
            return
        self.received = True
        queued = self._queued
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail("protocol", f"the replica sent bytes that are not HTTP/1.1: {error}")
            return
        if not self.done:
            self._bare = self._bare + len(data) if self._queued == queued else 0
            if self._bare > MAX_BARE:
                self._fail("protocol", f"the replica sent more than {MAX_BARE} bytes of headers")
                return
        if self._queued > HIGH_WATER and not self._paused and self.transport is not None and not self.done:
            self._paused = True
            self.transport.pause_reading()
        self._wake()

    def eof_received(self) -> bool:
        """Let the transport close."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """End the answer: whole when its end is the connection's end, else an error."""
        self.closed = True
        if not self.done:
            if exc is None and self.headers is not None and not self._delimited:
                self.done = True
                self.keep_alive = False
            else:
                waited = self._loop.time() - (self._deadline - self.limits.total_s)
                stale = self.reused and not self.received and waited < STALE_S
                detail = "before answering" if not self.received else "in the middle of its answer"
                self.error = self.error or UpstreamError(
                    "closed", f"the replica closed the connection {detail}", stale=stale
                )
                self.done = True
        if self.on_idle_close is not None:
            self.on_idle_close(self)
        self._stop_timer()
        self._wake()

    # httptools

    def on_header(self, name: bytes, value: bytes) -> None:
        """Collect one header."""
        self._message_headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """Publish status and headers of a final answer; informational ones are passed over."""
        if self.done:
            # A second answer to one request: whatever it is, it must not become part of the first.
            self.keep_alive = False
            return
        status = self._parser.get_status_code()
        if status < 200:
            self._message_headers = []
            return
        self.status = status
        self.keep_alive = bool(self._parser.should_keep_alive())
        for name, value in self._message_headers:
            if name == b"content-length" or (name == b"transfer-encoding" and b"chunked" in value.lower()):
                self._delimited = True
        self._delimited = self._delimited or status in (204, 304)
        self.headers = self._message_headers
        if self._bodiless:
            # The parser does not know that the question was HEAD, and would wait for a body.
            self.keep_alive = False
            self.done = True
            self._stop_timer()

    def on_body(self, body: bytes) -> None:
        """Queue a piece of the body."""
        if self.done:
            return
        self._parts.append(body)
        self._queued += len(body)

    def on_message_complete(self) -> None:
        """Note the end of a final answer."""
        if self.headers is not None:
            self.done = True
            self._stop_timer()

    # One request

    def speaks(self) -> bool:
        """Return whether a kept connection has something unread: its end, or what would be read as the next answer.

        The loop may have been too busy to look: proxies say 408 before they close.
        """
        if self._poll is None:
            assert self.transport is not None
            self._poll = select.poll()
            self._poll.register(self.transport.get_extra_info("socket").fileno(), select.POLLIN)
        return bool(self._poll.poll(0))

    def send(self, data: bytes, limits: Limits) -> None:
        """Begin a request whose whole head and body are `data`."""
        self._reset()
        assert self.transport is not None
        self.done = False
        self._bodiless = data.startswith(b"HEAD ")
        self.limits = limits
        now = self._loop.time()
        self._deadline = now + limits.total_s
        self._limit_s = limits.first_token_s
        self._wait_began = now
        self._arm(min(limits.first_token_s, limits.total_s))
        self.transport.write(data)

    def between_tokens(self) -> None:
        """From now on a pause is held against `between_tokens_s`; until now the time since `send`, against `first_token_s`."""
        self._first = False
        self._wait_began = self._loop.time()
        self._limit_s = self.limits.between_tokens_s
        self._arm(min(self._limit_s, max(0.0, self._deadline - self._loop.time())))

    def take(self) -> bytes | None:
        """Return all body bytes that are here, or None. Resumes a paused socket."""
        parts = self._parts
        if not parts:
            return None
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        self._parts = []
        self._queued = 0
        if self._paused and self.transport is not None and not self.closed:
            self._paused = False
            self.transport.resume_reading()
        return data

    async def wait(self) -> None:
        """Return when something has changed; raise UpstreamError when the answer cannot go on."""
        if self.error is not None and not self._parts:
            raise self.error
        if self.done:
            return
        self._waiter = waiter = self._loop.create_future()
        if not self._first:
            self._wait_began = self._loop.time()
        try:
            await waiter
        finally:
            self._waiter = None
        if self.error is not None and not self._parts:
            raise self.error

    async def read_all(self, limit: int) -> bytes:
        """Return the whole body; raise UpstreamError('protocol') above `limit` bytes."""
        pieces: list[bytes] = []
        size = 0
        while True:
            piece = self.take()
            if piece is not None:
                pieces.append(piece)
                size += len(piece)
                if size > limit:
                    self.abort()
                    raise UpstreamError("protocol", f"the answer is larger than {limit} bytes")
            elif self.error is not None:
                raise self.error
            elif self.done:
                return b"".join(pieces)
            else:
                await self.wait()

    def abort(self, failure: Failure = "aborted", message: str = "the request was given up") -> None:
        """Close the connection at once; a waiting reader gets UpstreamError."""
        self._fail(failure, message)

    # Inside

    def _arm(self, seconds: float) -> None:
        self._stop_timer()
        self._due = self._loop.time() + seconds
        self._timer = self._loop.call_later(seconds, self._check)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self) -> None:
        self._timer = None
        if self.done:
            return
        now = self._loop.time()
        # The loop's clock counts whole milliseconds; where both limits end together, the total one is meant.
        if now >= self._deadline - 0.0015:
            self._fail("total_timeout", f"no whole answer within {self.limits.total_s:g} s")
            return
        if self._waiter is None:
            # The reader is the slow one: only the total limit holds.
            self._arm(min(self._limit_s, self._deadline - now))
            return
        left = self._wait_began + self._limit_s - now
        if left > 0.001:
            self._arm(min(left, self._deadline - now))
        elif now - self._due > _UNREAD_S and self.speaks():
            # This process stood still, not the replica; and timers are seen before what the sockets have to say.
            self._arm(min(_UNREAD_S, self._deadline - now))
        elif self._first:
            self._fail("first_token_timeout", f"no first token within {self._limit_s:g} s")
        else:
            self._fail("between_tokens_timeout", f"no further token within {self._limit_s:g} s")

    def _fail(self, failure: Failure, message: str) -> None:
        if not self.done:
            self.error = UpstreamError(failure, message)
            self.done = True
            self._parts = []
        self._close()
        self._wake()

    def _close(self) -> None:
        self.closed = True
        self._stop_timer()
        if self.transport is not None:
            self.transport.abort()

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)
