"""What a client has not read yet of an answer that others wait for: the answer comes in at the replica's pace."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]


class Backlog:
    """Messages to a client, in order; up to `most` bytes wait for it without holding up who sends them.

    `paused` says whether the client's connection takes no more for now. `on_full` is called once, when more than `most`
    bytes wait: from then on who sends is held up as by any slow client.
    """

    def __init__(self, send: Send, paused: Callable[[], bool], most: int, on_full: Callable[[], None]) -> None:
        self._send = send
        self._paused = paused
        self._most = most
        self._on_full: Callable[[], None] | None = on_full
        self._messages: deque[Message] = deque()
        self._room = asyncio.Event()
        self._pump: asyncio.Task[None] | None = None
        self.bytes = 0
        """Bytes that wait."""

    async def send(self, message: Message) -> None:
        """Send a message after those that wait."""
        if self._pump is None:
            if not self._paused():
                await self._send(message)
                return
            self._pump = asyncio.ensure_future(self._run())
        self._messages.append(message)
        self.bytes += len(message.get("body", b""))
        if self.bytes <= self._most:
            return
        if self._on_full is not None:
            self._on_full()
            self._on_full = None
        self._room.clear()
        await self._room.wait()

    async def flush(self) -> None:
        """Return when the client's connection has taken everything."""
        if self._pump is not None:
            await self._pump

    async def _run(self) -> None:
        try:
            while self._messages:
                message = self._messages.popleft()
                await self._send(message)
                self.bytes -= len(message.get("body", b""))
                if self.bytes <= self._most:
                    self._room.set()
        finally:
            self._pump = None
            self._room.set()
