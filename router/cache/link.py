"""One connection to Redis that all requests of a worker share: commands go out as they come, answers come in order.

A general client's pool costs a request several times the CPU of the answer it fetches; this is hiredis and a queue.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, cast

import hiredis

from router.cache.address import Address

Argument = bytes | str | int
MAX_UNSENT = 8 * 1024 * 1024
"""Bytes that may wait for a server that reads slowly; above it writes are refused."""
GRACE_S = 0.005
"""After the deadline, seconds: a busy loop looks at its timers before it reads what has long been there."""


COMPANY_S = 0.001
"""How long a write whose answer nobody waits for may wait for the next command, seconds: each write to a socket costs a
system call, and wakes the server."""


class LinkLost(ConnectionError):  # noqa: N818 - what happened, in the past
    """The connection ended, or did not answer in time, before this command's answer."""


class Refusal(Exception):  # noqa: N818 - an answer of the server
    """The server answered with an error."""


class Link(asyncio.Protocol):
    """A connection; `call` gives a future of the answer. A late answer ends the connection: order is all it has."""

    def __init__(self, timeout_s: float, on_lost: Callable[[str, bool], None]) -> None:
        self._timeout_s = timeout_s
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._reader = hiredis.Reader()
        self._waiting: deque[tuple[asyncio.Future[Any] | None, float]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._late = False
        self._transport: asyncio.Transport | None = None
        self._held: list[bytes] = []
        self._flush_timer: asyncio.TimerHandle | None = None
        self._told = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are no subclass of asyncio's.

    def data_received(self, data: bytes) -> None:
        """Hand each answer to the command that waits longest."""
        try:
            self._reader.feed(data)
            while True:
                answer = self._reader.gets()
                if answer is False:
                    return
                if not self._waiting:
                    self.end("an answer that nobody asked for", False)
                    return
                future, _ = self._waiting.popleft()
                if future is not None and not future.done():
                    if isinstance(answer, hiredis.ReplyError):
                        future.set_exception(Refusal(str(answer)))
                    else:
                        future.set_result(answer)
        except hiredis.ProtocolError as error:
            self.end(f"not Redis's protocol: {error}", False)

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail what waits."""
        self.end(str(exc) if exc else "the server closed the connection", False)

    def call(self, *command: Argument) -> asyncio.Future[Any]:
        """Send one command; the future gives its answer, Refusal or LinkLost."""
        future: asyncio.Future[Any] = self._loop.create_future()
        if self._take(_packed(command), (future,)):
            self._flush()
        return future

    def send(self, *commands: tuple[Argument, ...]) -> asyncio.Future[Any] | None:
        """Send commands in one piece, soon; the future gives the first one's answer. None: too much waits already."""
        transport = self._transport
        if self._told or transport is None or transport.get_write_buffer_size() > MAX_UNSENT:
            return None
        future: asyncio.Future[Any] = self._loop.create_future()
        packed = b"".join(_packed(command) for command in commands)
        if self._take(packed, (future, *([None] * (len(commands) - 1)))) and self._flush_timer is None:
            self._flush_timer = self._loop.call_later(COMPANY_S, self._flush)
        return future

    def _take(self, packed: bytes, futures: tuple[asyncio.Future[Any] | None, ...]) -> bool:
        """Put commands behind those that are held; False where the connection has ended."""
        if self._told or self._transport is None:
            for future in futures:
                if future is not None:
                    future.set_exception(LinkLost("the connection has ended"))
            return False
        deadline = self._loop.time() + self._timeout_s
        for future in futures:
            self._waiting.append((future, deadline))
        if self._timer is None:
            self._timer = self._loop.call_at(deadline, self._look)
        self._held.append(packed)
        return True

    def _flush(self) -> None:
        if self._flush_timer is not None:
            self._flush_timer.cancel()
            self._flush_timer = None
        held, self._held = self._held, []
        if held and self._transport is not None and not self._told:
            self._transport.write(held[0] if len(held) == 1 else b"".join(held))

    def _look(self) -> None:
        # One timer for all commands: it looks at the oldest, and again when that one would be late.
        self._timer = None
        late, self._late = self._late, False
        if not self._waiting:
            return
        deadline = self._waiting[0][1]
        if self._loop.time() >= deadline + (GRACE_S if late else 0.0):
            if late:
                self.end(f"no answer in {self._timeout_s:g} s", True)
                return
            # Between this turn and the next one the loop reads: only what is not there then is late.
            self._late = True
            self._timer = self._loop.call_later(GRACE_S, self._look)
        else:
            self._timer = self._loop.call_at(deadline, self._look)

    def end(self, why: str, hung: bool) -> None:
        """Close at once, fail what waits, and tell the owner, once. `hung`: the server is there but silent."""
        if self._told:
            return
        # What was held goes first: it may be an entry, or a lease given back by a worker that stops.
        self._flush()
        self._told = True
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            self._transport.abort()
        waiting, self._waiting = self._waiting, deque()
        for future, _ in waiting:
            if future is not None and not future.done():
                future.set_exception(LinkLost(why))
                # Whoever has left no longer asks for it.
                future.exception()
        self._on_lost(why, hung)


def _packed(command: tuple[Argument, ...]) -> bytes:
    # hiredis's types know only commands of one word.
    packed: bytes = hiredis.pack_command(command)  # type: ignore[arg-type]
    return packed


async def connect(address: Address, timeout_s: float, on_lost: Callable[[str, bool], None]) -> Link:
    """Return a connection that has been let in. Raises OSError, TimeoutError, LinkLost, Refusal."""
    loop = asyncio.get_running_loop()

    def make() -> Link:
        return Link(timeout_s, on_lost)

    async with asyncio.timeout(timeout_s):
        if address.path is not None:
            _, link = await loop.create_unix_connection(make, address.path)
        else:
            server = address.host if address.tls is not None else None
            _, link = await loop.create_connection(
                make, address.host, address.port, ssl=address.tls, server_hostname=server
            )
    try:
        async with asyncio.timeout(timeout_s):
            for command in [*address.greeting(), ("PING",)]:
                await link.call(*command)
    except BaseException:
        link.end("not let in", False)
        raise
    return link
