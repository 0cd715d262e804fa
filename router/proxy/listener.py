"""uvicorn's HTTP/1.1 connection with the limits it lacks: on the size of a request's head, on the wait for it, and on the
wait for a client that does not read.

It also tells a request what ASGI lacks, or tells by a task for each request: the moment the client leaves, whether it
has stopped reading, whether the whole body is here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from router.listening import waits
from router.proxy.errors import ApiError

MAX_HEAD = 64 * 1024
"""Bytes of a request's line and headers; they are parsed piece by piece, which costs more than linearly."""
LINGER_S = 1.0
"""How long a refused connection is still read, and what comes thrown away, seconds."""
LAST_S = 1.0
"""How long a connection that has just come may take to bring its request when the server stops, seconds."""

CONNECTION = "bitgear.connection"
"""Name in a request's scope of its `Listener`."""
WHOLE = "bitgear.whole"
"""Name in a request's scope of a mark: its whole body has come."""


class Limits(NamedTuple):
    """How long a connection waits for its client, seconds."""

    head_s: float
    """For a whole head."""
    send_s: float
    """For the client to take anything of what waits for it."""


class _HeadFirst:
    """A transport that keeps an answer's head until what follows it: one system call, and one packet, for both."""

    __slots__ = ("_close", "_head", "_transport", "is_closing")

    def __init__(self, transport: asyncio.Transport, close: Callable[[], None]) -> None:
        self._transport = transport
        self._close = close
        self._head: bytes | None = b""
        self.is_closing = transport.is_closing

    def write(self, data: bytes) -> None:
        """Write; the first piece, unless it is an interim answer, with the second one."""
        head = self._head
        if head is None:
            self._transport.write(data)
        elif head:
            self._head = None
            self._transport.write(head + data)
        elif data.startswith(b"HTTP/1.1 100"):
            self._transport.write(data)
        else:
            self._head = data

    def close(self) -> None:
        """Close, once what is kept is written."""
        if self._head:
            self.write(b"")
        self._close()


class _Unchunked(_HeadFirst):
    """The same for a client of HTTP/1.0, which knows no chunks: an answer of unknown length ends with its connection."""

    __slots__ = ("_chunked",)

    def __init__(self, transport: asyncio.Transport, close: Callable[[], None]) -> None:
        super().__init__(transport, close)
        self._chunked: bool | None = None

    def write(self, data: bytes) -> None:
        """Write a head, or what is in one chunk."""
        if self._chunked is None:
            head = data.replace(b"transfer-encoding: chunked\r\n", b"")
            self._chunked = len(head) < len(data)
            data = head
        elif self._chunked and data:
            size, _, rest = data.partition(b"\r\n")
            data = rest[: int(size, 16)]
        super().write(data)


class _Dropped(list[tuple[bytes, bytes]]):
    """Where trailers go: they come after the request was admitted by its head, and nothing here reads any."""

    def append(self, item: tuple[bytes, bytes]) -> None:
        """Keep nothing."""


class Listener(HttpToolsProtocol):
    """One client's connection; what it refuses is refused in OpenAI's format."""

    def __init__(self, *args: Any, limits: Limits, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._limits = limits
        self._send_timer: asyncio.TimerHandle | None = None
        self._unsent = 0
        self._running: RequestResponseCycle | None = None
        self._head_done = False
        self._head_bytes = 0
        self._whole = False
        self._brought = False
        self._head_timer: asyncio.TimerHandle | None = None
        self._refused = False
        self._lost = False
        self._last = False
        self._watchers: set[Callable[[], None]] = set()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first head."""
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._stop_timer()
        self._stop_sending()
        super().connection_lost(exc)
        self._lost = True
        self._hush()
        watchers, self._watchers = self._watchers, set()
        for on_lost in watchers:
            on_lost()

    def data_received(self, data: bytes) -> None:
        """Parse, and look at what is not a whole head yet."""
        if self._refused:
            return
        self._brought = False
        self._parse(data)
        if self.transport.is_closing():
            return
        if self.cycle is not None and self.cycle.response_complete:
            # The next head; or empty lines, or the rest of a body that nobody waits for: they are not to go on for ever.
            self._await_head()
        if self._head_done and (self._whole or self._brought):
            self._head_bytes = 0
            return
        # A head that isn't whole; or, after it, what is no body: chunks' extensions, trailers.
        self._head_bytes += len(data)
        if self._head_bytes > MAX_HEAD:
            self._refuse(ApiError(431, f"headers: larger than {MAX_HEAD} bytes", "headers", "headers_too_large"))
        elif not self._head_done:
            self._await_head()

    def _parse(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError:
            self.send_400_response("Invalid HTTP request received.")
        except httptools.HttpParserUpgrade as upgrade:
            if self.parser.get_method() == b"CONNECT":
                self.send_400_response("CONNECT is not served here.")
            else:
                self._decline(data[upgrade.args[0] :])

    def _decline(self, rest: bytes) -> None:
        """Read a request that offers another protocol as if it did not (RFC 9110, section 7.8).

        The parser stops after such a head: it would leave the body out, and take it for the next request.
        """
        lines = [b"%b %b HTTP/%b" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())]
        for name, value in self.headers:
            if name == b"connection":
                kept = [t for t in value.split(b",") if t.strip().lower() not in (b"upgrade", b"http2-settings")]
                value = b",".join(kept)
            if name not in (b"upgrade", b"http2-settings"):
                lines.append(name + b": " + value)
        self.parser = httptools.HttpRequestParser(self)
        self._parse(b"\r\n".join(lines) + b"\r\n\r\n" + rest)

    def on_message_begin(self) -> None:
        """A new head begins."""
        self._head_done = self._whole = False
        self._head_bytes = 0
        super().on_message_begin()
        self.scope[CONNECTION] = self  # type: ignore[literal-required]

    def on_headers_complete(self) -> None:
        """The head is whole."""
        if self.parser.should_upgrade():
            return
        self._head_done = True
        self._stop_timer()
        super().on_headers_complete()
        self.headers = _Dropped()
        if self._last:
            self.cycle.keep_alive = False
        old = self.scope["http_version"] == "1.0"
        if old:
            # RFC 9110, section 10.1.1: it knows no interim answers.
            self.cycle.waiting_for_100_continue = False
        if self.scope["method"] != "HEAD":
            # To a HEAD nothing follows.
            kind = _Unchunked if old else _HeadFirst
            self.cycle.transport = kind(self.transport, self._close)  # type: ignore[assignment]

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        self._brought = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The body is whole."""
        if self.parser.should_upgrade():
            return
        self._whole = True
        self.scope[WHOLE] = True  # type: ignore[literal-required]
        super().on_message_complete()

    def shutdown(self) -> None:
        """Answer what has come, and nothing after it; a connection that brought nothing yet has a moment for it."""
        idle = self.cycle is None or self.cycle.response_complete
        sock = self.transport.get_extra_info("socket")
        if idle and (self.cycle is None or self._head_bytes or (sock is not None and waits(sock))):
            self._last = True
            self.loop.call_later(LAST_S, self._end_idle)
        else:
            super().shutdown()

    def _end_idle(self) -> None:
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP."""
        self._refuse(ApiError(400, msg, None, "invalid_http"))

    def paused(self) -> bool:
        """Return whether the client has stopped reading, which `send` would wait for."""
        return self.flow.write_paused

    def watch(self, on_lost: Callable[[], None]) -> None:
        """Call `on_lost` once when the connection is lost; soon, if it is lost already."""
        if self._lost:
            self.loop.call_soon(on_lost)
            return
        self._watchers.add(on_lost)
        # Reading may rest after a large body; a connection that is not read is not seen to end.
        self.flow.resume_reading()

    def unwatch(self, on_lost: Callable[[], None]) -> None:
        """Do not call it any more."""
        self._watchers.discard(on_lost)

    def pause_writing(self) -> None:
        """More waits for the client than is sent at once: it has to read on."""
        super().pause_writing()
        self._await_reading()

    def resume_writing(self) -> None:
        """Little is left."""
        super().resume_writing()
        if not self.transport.is_closing():
            self._stop_sending()

    def timeout_keep_alive_handler(self) -> None:
        """Close a connection that brought no other request."""
        if not self.transport.is_closing():
            self._close()

    def _close(self) -> None:
        # What is written goes out before; to a client that does not read, never.
        self.transport.close()
        self._await_reading()

    def _await_reading(self) -> None:
        if self._send_timer is None and not self._lost:
            self._unsent = self.transport.get_write_buffer_size()
            self._send_timer = self.loop.call_later(self._limits.send_s, self._not_read)

    def _not_read(self) -> None:
        self._send_timer = None
        left = self.transport.get_write_buffer_size()
        if left >= self._unsent:
            self.transport.abort()
        else:
            self._await_reading()

    def _stop_sending(self) -> None:
        if self._send_timer is not None:
            self._send_timer.cancel()
            self._send_timer = None

    def _await_head(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(self._limits.head_s, self._too_slow)

    def _too_slow(self) -> None:
        self._head_timer = None
        if self.transport.is_closing():
            return
        if self.cycle is not None and self.cycle.response_complete and self._head_done:
            # Nothing of another request has come that could be refused.
            self._close()
            return
        self._refuse(ApiError(408, f"no whole request within {self._limits.head_s:g} s", None, "request_timeout"))

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        # The last one that has come (`cycle`) may wait behind it.
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def _hush(self) -> None:
        """Let nothing more be written of the answer under way."""
        if self._running is not None and not self._running.response_complete:
            self._running.disconnected = True
            self._running.waiting_for_100_continue = False
            self._running.message_event.set()

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _refuse(self, error: ApiError) -> None:
        if self._refused:
            return
        self._refused = True
        self._stop_timer()
        self._hush()
        cycle = self.cycle
        if self.pipeline or (
            cycle is not None and cycle.response_started and not (cycle.response_complete and self._whole)
        ):
            # A request has its answer, or part of it: another one in its midst would be read as more of it.
            self._close()
            return
        # What is said here is its answer.
        body = error.body()
        self.transport.write(
            b"HTTP/1.1 %d \r\ncontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%b"
            % (error.status, len(body), body)
        )
        # Closed at once, with bytes unread, the socket would be reset, and the client would not see why.
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.loop.call_later(LINGER_S, self.transport.close)
