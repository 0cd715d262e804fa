"""A scripted HTTP/1.1 server on a real socket: it sends exact bytes, hangs, closes and resets as a test says.

It answers `/health`, `/v1/models`, `/metrics` and readiness probes as vLLM does; every other
request plays the next script. Everything happens on the test's own event loop, so tests wait on events, never on time.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self, cast

from tests.support.script import Close, Exchange, Hang, Reset, Script, Send, Sleep, Step, Wait, sends
from tests.support.sides import is_probe, metrics, models, probe_answer
from tests.support.wire import ChatWire, json_response


class ScriptedUpstream:
    """Use as `async with ScriptedUpstream() as up:`; its address is `up.url`."""

    def __init__(self, model: str = "m", max_model_len: int = 32768) -> None:
        self.model = model
        self.max_model_len = max_model_len
        self.exchanges: list[Exchange] = []
        """Requests under test, in order of arrival."""
        self.side: list[Exchange] = []
        """Probes, health checks and readings of metrics."""
        self.health_status = 200
        self.probe_answer: Callable[[Exchange], Script] | None = None
        """Replaces the answer to readiness probes."""
        self.metrics_answer: Callable[[Exchange], Script] | None = None
        self.reported_running: float | None = None
        """What `/metrics` says is running; None: what is."""
        self.reported_waiting = 0.0
        self.kv_usage = 0.0
        self.choose: Callable[[Exchange], Script] | None = None
        """Gives a request's script where no script is queued."""
        self.running = 0
        """Requests under test whose script has not ended and whose client has not left."""
        self.peak_running = 0
        self.accepted = 0
        """Connections ever accepted."""
        self.open_connections = 0
        self.port = 0
        self._queue: deque[Script] = deque()
        self._default: Script | None = None
        self._server: asyncio.Server | None = None
        self._connections: set[_Connection] = set()
        self._waiters: set[asyncio.Future[None]] = set()

    @property
    def url(self) -> str:
        """Base URL, without a path."""
        return f"http://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        await self.listen()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def listen(self) -> None:
        """Starts (again) to listen; the port stays the same over a `stop`."""
        self._server = await asyncio.get_running_loop().create_server(
            lambda: _Connection(self), "127.0.0.1", self.port, backlog=4096, reuse_address=True
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Stops listening and resets every connection, as a killed server does."""
        if self._server is not None:
            self._server.close()
            self._server = None
        tasks = [c.task for c in self._connections]
        for connection in list(self._connections):
            connection.reset()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def enqueue(self, *scripts: Script) -> None:
        """Each of the next requests plays one of these, in order."""
        self._queue.extend(scripts)

    def always(self, script: Script) -> None:
        """What requests play when nothing is queued."""
        self._default = script

    async def until(self, condition: Callable[[], bool], timeout: float = 60.0) -> None:
        """Returns once the condition holds; it is looked at after every change here. Raises TimeoutError."""
        async with asyncio.timeout(timeout):
            while not condition():
                waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._waiters.add(waiter)
                try:
                    await waiter
                finally:
                    self._waiters.discard(waiter)

    async def exchange(self, index: int = 0, timeout: float = 60.0) -> Exchange:
        """The request under test with this number, once it has arrived."""
        await self.until(lambda: len(self.exchanges) > index, timeout)
        return self.exchanges[index]

    def _changed(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _script(self, exchange: Exchange) -> Script:
        path = exchange.target.split("?")[0]
        side = self._side_script(exchange, path)
        if side is not None:
            self.side.append(exchange)
            return side
        exchange.under_test = True
        self.exchanges.append(exchange)
        self.running += 1
        self.peak_running = max(self.peak_running, self.running)
        if self._queue:
            return self._queue.popleft()
        if self.choose is not None:
            return self.choose(exchange)
        if self._default is not None:
            return self._default
        return [Send(json_response(ChatWire(self.model).answer()))]

    def _side_script(self, exchange: Exchange, path: str) -> Script | None:
        if exchange.method == "POST":
            if not is_probe(exchange):
                return None
            return self.probe_answer(exchange) if self.probe_answer else probe_answer(exchange, path, self.model)
        if path == "/health":
            return [Send(json_response(b"", self.health_status))]
        if path == "/version":
            return [Send(json_response(b'{"version":"0.32.0"}'))]
        if path == "/v1/models":
            return [Send(json_response(models(self.model, self.max_model_len)))]
        if path == "/metrics":
            return self.metrics_answer(exchange) if self.metrics_answer else [Send(json_response(self._metrics()))]
        return [Send(json_response(b'{"detail":"Not Found"}', 404))]

    def _metrics(self) -> bytes:
        running = self.running if self.reported_running is None else self.reported_running
        return metrics(self.model, running, self.reported_waiting, self.kv_usage)


class _Connection(asyncio.Protocol):
    """One accepted connection; requests on it are served one after the other."""

    def __init__(self, server: ScriptedUpstream) -> None:
        self._server = server
        self._reader = asyncio.StreamReader(limit=1 << 20)
        self._writable = asyncio.Event()
        self._writable.set()
        self._lost = asyncio.Event()
        self._exchange: Exchange | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport = cast("asyncio.Transport", transport)  # uvloop's are no subclass of asyncio's.
        transport.set_write_buffer_limits(high=0)
        self._socket().setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader.set_transport(transport)
        self._server.accepted += 1
        self._server.open_connections += 1
        self._server._connections.add(self)
        self.number = self._server.accepted
        self.task = asyncio.get_running_loop().create_task(self._serve())

    def data_received(self, data: bytes) -> None:
        self._reader.feed_data(data)

    def eof_received(self) -> bool:
        return False  # A client that shuts down its half has left: the transport closes, then connection_lost comes.

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._reader.feed_eof()
        self._lost.set()
        self._writable.set()
        self._server.open_connections -= 1
        self._server._connections.discard(self)
        exchange = self._exchange
        if exchange is not None and not exchange.done.is_set():
            exchange.closed_at = time.monotonic()
            exchange.closed.set()
        self._end_exchange()
        self._server._changed()

    def reset(self) -> None:
        """RST instead of FIN: what is unsent is thrown away."""
        self._socket().setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()

    def _socket(self) -> Any:
        return self.transport.get_extra_info("socket")

    def _end_exchange(self) -> None:
        exchange, self._exchange = self._exchange, None
        if exchange is None or exchange.done.is_set():
            return
        exchange.done.set()
        if exchange.under_test:
            self._server.running -= 1
        self._server._changed()

    async def _serve(self) -> None:
        try:
            while not self._lost.is_set():
                exchange = await self._read_request()
                self._exchange = exchange
                script = self._server._script(exchange)
                self._server._changed()
                if not await self._play(exchange, script):
                    return
                self._end_exchange()
        except (asyncio.IncompleteReadError, ConnectionError):
            self.transport.close()

    async def _read_request(self) -> Exchange:
        head = await self._reader.readuntil(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        method, target, _ = lines[0].split(" ", 2)
        pairs = (line.split(":", 1) for line in lines[1:] if line)
        headers = [(name.strip().lower(), value.strip()) for name, value in pairs]
        named = dict(headers)
        if "chunked" in named.get("transfer-encoding", ""):
            body = await self._read_chunked()
        else:
            body = await self._reader.readexactly(int(named.get("content-length", "0")))
        return Exchange(method, target, headers, head, body, self.number)

    async def _read_chunked(self) -> bytes:
        parts: list[bytes] = []
        while True:
            size = int((await self._reader.readuntil(b"\r\n")).split(b";")[0], 16)
            data = await self._reader.readexactly(size + 2)
            if not size:
                return b"".join(parts)
            parts.append(data[:-2])

    async def _play(self, exchange: Exchange, script: Script) -> bool:
        """Plays the steps; False when the connection is over."""
        for step in script:
            if self._lost.is_set() or self.transport.is_closing():
                return False
            match step:
                case Send(data):
                    self.transport.write(data)
                    await self._writable.wait()
                    if self._lost.is_set():
                        return False
                    exchange.sent += len(data)
                    await asyncio.sleep(0)  # A reader on this loop gets its turn before the next piece leaves.
                case Wait(event):
                    await self._either(event)
                case Hang():
                    await self._either(exchange.released)
                case Sleep(seconds):
                    await asyncio.sleep(seconds)
                case Close():
                    self._end_exchange()
                    self.transport.close()
                    return False
                case Reset():
                    self._end_exchange()
                    self.reset()
                    return False
        return not self._lost.is_set()

    async def _either(self, event: asyncio.Event) -> None:
        """Waits for the event or for the client's leaving."""
        waits = [asyncio.ensure_future(event.wait()), asyncio.ensure_future(self._lost.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()


__all__ = ["Close", "Exchange", "Hang", "Reset", "Script", "ScriptedUpstream", "Send", "Sleep", "Step", "Wait", "sends"]
