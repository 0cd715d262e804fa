"""The client's side of one request: its body, its answer, and the moment it leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, MutableMapping
from functools import partial
from typing import Any, Protocol, TypeVar

from router.proxy.backlog import Backlog
from router.proxy.errors import ApiError

T = TypeVar("T")
Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class ClientLeft(Exception):  # noqa: N818 - not an error of ours
    """The client closed its connection before the answer's end."""


class Wire(Protocol):
    """The connection beneath, where the server shows it."""

    def paused(self) -> bool:
        """Return whether it takes no more bytes for now."""

    def watch(self, on_lost: Callable[[], None]) -> None:
        """Call `on_lost` once when it is lost."""

    def unwatch(self, on_lost: Callable[[], None]) -> None:
        """Do not call it any more."""


class Client:
    """Wraps ASGI's `receive` and `send`; calls `on_leave` at once when the client goes.

    Without a `wire` a task waits for that, which costs more than a call.
    """

    def __init__(self, receive: Receive, send: Send, wire: Wire | None = None) -> None:
        self._receive = receive
        self._send = send
        self._wire = wire
        self._backlog: Backlog | None = None
        self._watch: asyncio.Task[None] | None = None
        self._on_leave: Callable[[], None] | None = None
        self.on_gone: Callable[[], None] | None = None
        """Called instead when the client goes during a call that others may wait for: it ends the call by `leave`."""
        self.gone = False
        """Whether it closed its connection before the answer's end."""
        self.left = False
        """Whether its request is over for that reason."""
        self.started = False
        """Whether the head of an answer was sent."""
        self.finished = False
        self.more: Callable[[], list[tuple[bytes, bytes]]] | None = None
        """Gives headers for whatever answer it gets."""

    async def body(
        self, headers: list[tuple[bytes, bytes]], limit: int, timeout_s: float = 60.0, *, whole: bool = False
    ) -> bytes:
        """Return the request's whole body; `whole` says that it is here, so that nothing need be timed.

        Raises ApiError 413 above `limit` bytes, 408 when it is not whole after `timeout_s`, ClientLeft when it never
        will be.
        """
        if whole:
            return await self._body(headers, limit)
        try:
            async with asyncio.timeout(timeout_s):
                return await self._body(headers, limit)
        except TimeoutError:
            raise ApiError(408, f"body: not whole within {timeout_s:g} s", "body", "request_timeout") from None

    async def _body(self, headers: list[tuple[bytes, bytes]], limit: int) -> bytes:
        for name, value in headers:
            if name == b"content-length" and value.isdigit() and length_of(value) > limit:
                raise _too_large(limit)
            if name == b"content-encoding" and value.lower() != b"identity":
                raise ApiError(
                    415, "content-encoding: only identity is understood", "content-encoding", "unsupported_encoding"
                )
        pieces: list[bytes] = []
        size = 0
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                self.gone = self.left = True
                raise ClientLeft
            piece = message.get("body", b"")
            size += len(piece)
            if size > limit:
                raise _too_large(limit)
            pieces.append(piece)
            if not message.get("more_body", False):
                return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def watch(self, on_leave: Callable[[], None]) -> None:
        """From now on call `on_leave` once, at once, when the client closes its connection."""
        self._on_leave = on_leave
        if self._wire is not None:
            self._wire.watch(self._lost)
        else:
            self._watch = asyncio.ensure_future(self._wait_for_leave())

    async def _wait_for_leave(self) -> None:
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                break
        self._lost()

    def _lost(self) -> None:
        if self.finished or self.gone or self._on_leave is None:
            return
        self.gone = True
        if self.on_gone is not None:
            self.on_gone()
        else:
            self.leave()

    def leave(self) -> None:
        """End the request of a client that is gone."""
        self.left = True
        if self._on_leave is not None:
            self._on_leave()

    def unwatch(self) -> None:
        """Stop watching."""
        self._on_leave = None
        if self._wire is not None:
            self._wire.unwatch(self._lost)
        elif self._watch is not None:
            self._watch.cancel()
            self._watch = None

    async def unless_left(self, waiting: Coroutine[Any, Any, T]) -> T:
        """Return what `waiting` gives; raise ClientLeft at once when the client goes before."""
        task = asyncio.current_task()
        assert task is not None
        self.watch(partial(_cancel, task))
        try:
            return await waiting
        except asyncio.CancelledError:
            if not self.left:
                raise
            task.uncancel()
            raise ClientLeft from None
        finally:
            self.unwatch()

    def hold(self, most: int, on_full: Callable[[], None]) -> None:
        """From now on up to `most` bytes wait for a client that reads slowly; `on_full` is called when more would."""
        if self._wire is not None:
            self._backlog = Backlog(self._send, self._wire.paused, most, on_full)
            self._send = self._backlog.send

    async def flush(self) -> None:
        """Return when everything that waits for a slow client has been sent, or the client is gone."""
        if self._backlog is not None:
            await self._backlog.flush()

    async def start(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        """Send the answer's head."""
        self.started = True
        if self.more is not None:
            headers = [*headers, *self.more()]
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def write(self, data: bytes) -> None:
        """Send a piece of the answer; waits while the client reads slower than it is sent, unless it may `hold`."""
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def finish(self, data: bytes = b"") -> None:
        """Send the last piece."""
        self.finished = True
        await self._send({"type": "http.response.body", "body": data, "more_body": False})

    async def answer(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
        """Send a whole answer. 204 and 304 have no body, and no length of one (RFC 9110, section 8.6)."""
        if status in (204, 304):
            body = b""
        else:
            headers = [*headers, (b"content-length", b"%d" % len(body))]
        await self.start(status, headers)
        await self.finish(body)


def length_of(value: bytes) -> int:
    """Return the length that a header's digits say, however many zeros stand before it: the parser takes thousands."""
    return int(value.lstrip(b"0") or b"0")


def _cancel(task: asyncio.Task[Any]) -> None:
    task.cancel()


def _too_large(limit: int) -> ApiError:
    return ApiError(413, f"body: larger than the limit of {limit} bytes", "body", "request_too_large")
