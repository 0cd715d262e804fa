"""A call upstream that goes on after its own client has left, as long as somebody else waits for the answer."""

from __future__ import annotations

import asyncio
from types import TracebackType

from router.cache.flights import Flight
from router.cache.key import Key
from router.cache.store import Store
from router.proxy.client import Client

AGAIN_S = 0.25
"""Between two questions whether another worker still waits, seconds."""


class Carry:
    """While it is entered, the client's leaving ends the call only when nobody waits in this worker or another.

    `key` is that of the lease; None without one: then no other worker waits.
    """

    def __init__(self, client: Client, flight: Flight, store: Store, key: Key | None) -> None:
        self._client = client
        self._flight = flight
        self._store = store
        self._key = key
        self._asking: asyncio.Task[None] | None = None

    def __enter__(self) -> None:
        self._client.on_gone = self._flight.on_alone = self._look

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.on_gone = self._flight.on_alone = None
        if self._asking is not None:
            self._asking.cancel()

    def _look(self) -> None:
        client = self._client
        if not client.gone or client.left:
            return
        self._flight.orphan = True
        if self._flight.waiting:
            return
        if self._key is None:
            client.leave()
        elif self._asking is None or self._asking.done():
            self._asking = asyncio.ensure_future(self._ask(self._key))

    async def _ask(self, key: Key) -> None:
        # One short question before the call ends; a Redis that does not answer counts as no.
        while await self._store.wanted(key):
            await asyncio.sleep(AGAIN_S)
            if self._flight.waiting:
                return
        if not self._flight.waiting:
            self._client.leave()
