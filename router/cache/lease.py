"""The right to ask upstream for all workers, renewed while it is held."""

from __future__ import annotations

import asyncio

from router.cache.key import Key
from router.cache.store import Store


class Lease:
    """Held from its making; `end` it, and give it back unless the entry's writing did."""

    def __init__(self, token: str, life_ms: int) -> None:
        self.token = token
        self.given_back = False
        """Whether the writing of the entry gave it back."""
        self._life_ms = life_ms
        self._timer: asyncio.TimerHandle | None = None

    def keep_alive(self, store: Store, key: Key) -> None:
        """Renew it at each third of its life, until `end`."""

        def renew() -> None:
            store.lease(key, self.token, "renew", self._life_ms)
            self.keep_alive(store, key)

        self._timer = asyncio.get_running_loop().call_later(self._life_ms / 3000, renew)

    def end(self) -> None:
        """Renew no more."""
        if self._timer is not None:
            self._timer.cancel()
