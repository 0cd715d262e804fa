"""Baseline: raw ASGI with a pooled httptools client: about the least that an ASGI proxy in Python can cost.

No retries, limits, accounting or cancellation: what Bitgear adds is measured against this.
UPSTREAM=http://127.0.0.1:9000 uvicorn raw_asgi:app
"""

from __future__ import annotations

import asyncio
import os
from typing import Any, cast
from urllib.parse import urlsplit

import httptools
import orjson


class Upstream(asyncio.Protocol):
    """One kept connection, one request at a time."""

    def __init__(self) -> None:
        self.waiter: asyncio.Future[None] | None = None
        self.begin()

    def begin(self) -> None:
        self.parser = httptools.HttpResponseParser(self)
        self.headers: list[tuple[bytes, bytes]] = []
        self.parts: list[bytes] = []
        self.has_head = self.done = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.done = True
        self.wake()

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)
        self.wake()

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self.has_head = True

    def on_body(self, body: bytes) -> None:
        self.parts.append(body)

    def on_message_complete(self) -> None:
        self.done = True

    def wake(self) -> None:
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)

    async def wait(self) -> None:
        self.waiter = asyncio.get_running_loop().create_future()
        await self.waiter


class App:
    """Forwards every POST to one upstream."""

    def __init__(self) -> None:
        self.idle: list[Upstream] = []
        parts = urlsplit(os.environ["UPSTREAM"])
        self.host, self.port = parts.hostname or "127.0.0.1", parts.port or 80

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            while True:
                kind = (await receive())["type"]
                await send({"type": kind + ".complete"})
                if kind == "lifespan.shutdown":
                    return
        message = await receive()
        body = message["body"]
        while message.get("more_body"):
            message = await receive()
            body += message["body"]
        orjson.loads(body)
        up = await self.post(scope["raw_path"], body)
        headers = [h for h in up.headers if h[0] in (b"content-type", b"content-length")]
        await send({"type": "http.response.start", "status": up.parser.get_status_code(), "headers": headers})
        while True:
            while not up.parts and not up.done:
                await up.wait()
            done, data = up.done, b"".join(up.parts)
            up.parts = []
            await send({"type": "http.response.body", "body": data, "more_body": not done})
            if done:
                break
        if not up.transport.is_closing():
            self.idle.append(up)

    async def post(self, path: bytes, body: bytes) -> Upstream:
        if self.idle:
            up = self.idle.pop()
            up.begin()
        else:
            _, up = await asyncio.get_running_loop().create_connection(Upstream, self.host, self.port)
        head = b"POST %b HTTP/1.1\r\nhost: %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
        up.transport.write(head % (path, self.host.encode(), len(body)) + body)
        while not up.has_head and not up.done:
            await up.wait()
        return up


app = App()
