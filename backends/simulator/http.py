"""A small HTTP/1.1 server on an asyncio protocol.

Its own, so that a thousand streams cost little, a client's leaving is seen at once, and a connection can be reset
on demand, which no ASGI server offers.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import time
from collections import deque
from collections.abc import Awaitable, Callable
from email.utils import formatdate
from http import HTTPStatus
from typing import cast
from urllib.parse import unquote

import httptools

MAX_BODY = 256 * 2**20
"""Bytes of the largest body taken; a larger one gets 413."""

_STATUS = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}
Headers = tuple[tuple[str, str], ...]


class Exchange:
    """One request and its answer."""

    __slots__ = (
        "_connection",
        "_keep_alive",
        "body",
        "closed",
        "finished",
        "headers",
        "method",
        "on_close",
        "path",
        "started",
    )

    def __init__(
        self, connection: Connection, method: str, path: str, headers: dict[str, str], keep_alive: bool
    ) -> None:
        self._connection = connection
        self._keep_alive = keep_alive
        self.method = method
        self.path = path
        self.headers = headers
        """By lower-case name; the last of a name counts."""
        self.body = b""
        self.started = 0
        """Status sent, 0 before."""
        self.finished = False
        self.closed = False
        """Whether the client is gone."""
        self.on_close: Callable[[], None] | None = None
        """Called once if the client leaves before the answer is finished."""

    def send(
        self, status: int, body: bytes, content_type: str | None = "application/json", headers: Headers = ()
    ) -> None:
        """The whole answer at once."""
        if self.closed or self.finished:
            return
        lines = self._head(status, content_type, headers) + b"content-length: %d\r\n\r\n" % len(body)
        self._connection.transport.write(lines + (b"" if self.method == "HEAD" else body))
        self.finish()

    def start(
        self, status: int = 200, content_type: str = "text/event-stream; charset=utf-8", headers: Headers = ()
    ) -> None:
        """Status and headers of an answer that comes in pieces."""
        if not self.closed:
            self._connection.transport.write(
                self._head(status, content_type, headers) + b"transfer-encoding: chunked\r\n\r\n"
            )

    def write(self, data: bytes) -> None:
        """One piece."""
        if not self.closed:
            self._connection.transport.write(b"%x\r\n%b\r\n" % (len(data), data))

    def end(self, data: bytes = b"") -> None:
        """The last piece."""
        if not self.closed:
            piece = b"%x\r\n%b\r\n" % (len(data), data) if data else b""
            self._connection.transport.write(piece + b"0\r\n\r\n")
            self.finish()

    def finish(self) -> None:
        """The answer is complete: the connection may take its next request."""
        if not self.finished:
            self.finished = True
            self.on_close = None
            self._connection.finished(self._keep_alive)

    def reset(self) -> None:
        """Break the connection with a TCP reset, as a dying server does."""
        self._connection.reset()

    def _head(self, status: int, content_type: str | None, headers: Headers) -> bytes:
        self.started = status
        lines = [_STATUS[status], b"date: %b\r\nserver: uvicorn\r\n" % self._connection.server.date()]
        if content_type is not None:
            lines.append(b"content-type: %b\r\n" % content_type.encode())
        lines.extend(f"{name}: {value}\r\n".encode("latin-1") for name, value in headers)
        if not self._keep_alive:
            lines.append(b"connection: close\r\n")
        return b"".join(lines)


class Server:
    """Listens, and gives every request to `handler`."""

    def __init__(self, handler: Callable[[Exchange], Awaitable[None]]) -> None:
        self.handler = handler
        self.connections: set[Connection] = set()
        self.tasks: set[asyncio.Task[None]] = set()
        self._date = (0, b"")
        self._listener: asyncio.Server | None = None

    async def listen(self, host: str, port: int) -> int:
        """Start listening; the port, which is chosen freely when `port` is 0."""
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(lambda: Connection(self), host, port, backlog=4096)
        chosen: int = self._listener.sockets[0].getsockname()[1]
        return chosen

    async def close(self) -> None:
        """Stop listening, close every connection and wait for what was running."""
        if self._listener is not None:
            self._listener.close()
        for connection in list(self.connections):
            connection.transport.abort()
        for task in list(self.tasks):
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        if self._listener is not None:
            await self._listener.wait_closed()

    def date(self) -> bytes:
        """The date header's value, made once a second."""
        now = int(time.time())
        if now != self._date[0]:
            self._date = (now, formatdate(now, usegmt=True).encode())
        return self._date[1]


class Connection(asyncio.Protocol):
    """One client's connection: requests are answered one after the other."""

    transport: asyncio.Transport

    def __init__(self, server: Server) -> None:
        self.server = server
        self.parser = httptools.HttpRequestParser(self)
        self.queue: deque[Exchange] = deque()
        self.current: Exchange | None = None
        self._url = b""
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []
        self._size = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """asyncio's call."""
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is none by type
        # A thousand slow readers must not hold back the others: what waits is bounded by the answer's length.
        self.transport.set_write_buffer_limits(high=1 << 30)
        self.server.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """asyncio's call."""
        self.server.connections.discard(self)
        self.queue.clear()
        if (exchange := self.current) is not None:
            exchange.closed = True
            if exchange.on_close is not None:
                exchange.on_close()
                exchange.on_close = None

    def data_received(self, data: bytes) -> None:
        """asyncio's call."""
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError:
            self.transport.write(
                b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\nconnection: close\r\n"
                b"content-length: 30\r\n\r\nInvalid HTTP request received."
            )
            self.transport.close()

    def on_url(self, url: bytes) -> None:
        """httptools' call."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """httptools' call."""
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """httptools' call."""
        if self._headers.get("expect", "").lower() == "100-continue":
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, data: bytes) -> None:
        """httptools' call."""
        self._size += len(data)
        if self._size <= MAX_BODY:
            self._body.append(data)

    def on_message_complete(self) -> None:
        """httptools' call."""
        method = self.parser.get_method().decode("ascii")
        path = unquote(self._url.partition(b"?")[0].decode("latin-1"))
        exchange = Exchange(self, method, path, self._headers, self.parser.should_keep_alive())
        exchange.body = b"".join(self._body)
        too_large = self._size > MAX_BODY
        self._url, self._headers, self._body, self._size = b"", {}, [], 0
        if too_large:
            self.current = exchange
            exchange.send(413, b'{"detail":"Request body too large"}')
        elif self.current is None:
            self._begin(exchange)
        else:
            self.queue.append(exchange)

    def finished(self, keep_alive: bool) -> None:
        """The current answer is complete."""
        self.current = None
        if not keep_alive:
            self.transport.close()
        elif self.queue:
            self._begin(self.queue.popleft())

    def reset(self) -> None:
        """Close with RST."""
        with socket.socket(fileno=os.dup(self.transport.get_extra_info("socket").fileno())) as twin:
            twin.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()

    def _begin(self, exchange: Exchange) -> None:
        self.current = exchange
        task = asyncio.get_running_loop().create_task(self._answer(exchange))
        self.server.tasks.add(task)
        task.add_done_callback(self.server.tasks.discard)

    async def _answer(self, exchange: Exchange) -> None:
        try:
            await self.server.handler(exchange)
        except Exception:
            if exchange.started:
                self.transport.abort()
            else:
                exchange.send(
                    500,
                    b'{"error":{"message":"Internal Server Error","type":"InternalServerError","param":null,"code":500}}',
                )
            raise


__all__ = ["MAX_BODY", "Connection", "Exchange", "Headers", "Server"]
