"""Entries in a Redis Cluster: each key at the node that has its slot, one connection a node.

A request's keys share one hash tag, so one round trip to one node is enough. The map of slots is read anew when a node
says that it is out of date, when a node is away, and every half a minute; until then what has moved is a miss.
(https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/)
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from binascii import crc_hqx
from typing import Any, Literal
from urllib.parse import urlsplit

from router.cache.address import Address, parse_address
from router.cache.key import Key
from router.cache.link import Refusal, connect
from router.cache.store import ALONE_MS, Store

SLOTS = 16_384
REFRESH_S = 30.0
AGAIN_S = 1.0
"""Between two looks at the map while something is away, seconds."""
SCHEMES = ("redis+cluster", "rediss+cluster")
Host = tuple[str, int]


def is_cluster(url: str) -> bool:
    """Return whether the URL names a cluster's nodes."""
    return url.partition("://")[0] in SCHEMES


def parse_nodes(url: str, password: str | None = None) -> tuple[Address, ...]:
    """Return the nodes that `redis+cluster://[user:password@]host:port,host:port` names. Raises ValueError."""
    scheme, _, rest = url.partition("://")
    parts = urlsplit("//" + rest)
    login, _, hosts = parts.netloc.rpartition("@")
    if not hosts or parts.path.strip("/"):
        raise ValueError("a cluster's URL is redis+cluster://host:port,host:port; it has one database")
    plain = scheme.partition("+")[0]
    before = f"{plain}://{login}@" if login else f"{plain}://"
    return tuple(parse_address(f"{before}{host}?{parts.query}", password) for host in hosts.split(","))


def slot_of(name: str) -> int:
    """Return the slot of a key: CRC-16 (XMODEM) of its hash tag, or of all of it without one."""
    begin = name.find("{")
    end = name.find("}", begin + 1)
    tag = name[begin + 1 : end] if begin >= 0 and end > begin + 1 else name
    return crc_hqx(tag.encode(), 0) % SLOTS


class Cluster(Store):
    """What `Store` is for one server."""

    def __init__(self, url: str, *, password: str | None, timeout_s: float, log: logging.Logger) -> None:
        super().__init__(None, password=None, timeout_s=timeout_s, log=log)
        self._seeds = parse_nodes(url, password)
        self._nodes: dict[Host, Store] = {}
        self._slots: list[Store | None] = [None] * SLOTS
        self._stale = asyncio.Event()
        self.state = "starting"

    @property
    def up(self) -> bool:
        """Whether a look-up would be asked, at least of one node."""
        return any(node.up for node in self._nodes.values())

    @property
    def writable(self) -> bool:
        """Whether every node took the last write."""
        return all(node.writable for node in self._nodes.values())

    def start(self) -> None:
        """Begin to look for the nodes."""
        self._task.start(self._follow_map)

    async def stop(self) -> None:
        """Close."""
        await self._task.stop()
        for node in self._nodes.values():
            await node.stop()
        self.state = "stopped"

    async def locations(self) -> list[Address]:
        """Return every node that has slots."""
        return [self._seeds[0]._replace(host=host, port=port) for host, port in self._nodes]

    async def look(self, key: Key, token: str | None, lease_ms: int) -> bytes | int | None:
        """As `Store` does; None also while nobody is known to have the slot."""
        node = self._slots[slot_of(key.entry)]
        return None if node is None else await node.look(key, token, lease_ms)

    async def wanted(self, key: Key) -> bool:
        """As `Store` does."""
        node = self._slots[slot_of(key.entry)]
        return False if node is None else await node.wanted(key)

    async def audit(self, name: str, *arguments: str) -> list[bytes | int] | None:
        """As `Store` does."""
        node = self._slots[slot_of(name)]
        return None if node is None else await node.audit(name, *arguments)

    async def feed(self, name: str, after: str, most: int) -> list[tuple[str, bytes]]:
        """As `Store` does."""
        node = self._slots[slot_of(name)]
        return [] if node is None else await node.feed(name, after, most)

    def append(self, name: str, data: bytes, most: int, ttl_ms: int) -> None:
        """As `Store` does."""
        node = self._slots[slot_of(name)]
        if node is not None:
            node.append(name, data, most, ttl_ms)

    def put(self, key: Key, data: bytes, ttl_ms: int, token: str | None) -> None:
        """As `Store` does."""
        node = self._slots[slot_of(key.entry)]
        if node is None:
            self.stats.writes_failed += 1
        else:
            node.put(key, data, ttl_ms, token)

    def lease(self, key: Key, token: str | None, what: Literal["renew", "alone", "free"], ms: int = ALONE_MS) -> None:
        """As `Store` does."""
        node = self._slots[slot_of(key.entry)]
        if node is not None:
            node.lease(key, token, what, ms)

    async def _follow_map(self) -> None:
        while True:
            self._stale.clear()
            found = await self._map()
            if found is not None:
                await self._take(found)
            whole = found is not None and all(node.up for node in self._nodes.values())
            self.state = "up" if self.up else "starting" if self.state == "starting" and found is not None else "down"
            if whole:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(REFRESH_S):
                        await self._stale.wait()
            # A map that is wrong at once again is asked for again in a moment only.
            await asyncio.sleep(AGAIN_S if not whole else 0.05)

    async def _map(self) -> dict[Host, list[tuple[int, int]]] | None:
        """Return each master's ranges of slots, as the first node that answers tells them; None where none does."""
        known = [self._seeds[0]._replace(host=host, port=port) for host, port in self._nodes]
        for address in [*known, *self._seeds]:
            try:
                link = await connect(address, self._timeout_s, lambda why, hung: None)
            except (OSError, Refusal):
                continue
            try:
                rows: Any = await link.call("CLUSTER", "SLOTS")
                found: dict[Host, list[tuple[int, int]]] = {}
                for begin, end, (host, port, *_), *_replicas in rows:
                    # A node that does not know its own address leaves it empty or nil: it is the one that was asked.
                    found.setdefault(((host or b"").decode() or address.host, int(port)), []).append((begin, end))
                if found:
                    return found
            except (OSError, Refusal, ValueError, TypeError):
                continue
            finally:
                link.end("done", False)
        return None

    async def _take(self, found: dict[Host, list[tuple[int, int]]]) -> None:
        for host in found.keys() - self._nodes.keys():
            place = self._seeds[0]._replace(host=host[0], port=host[1])
            node = Store(place, password=None, timeout_s=self._timeout_s, log=self._log)
            # One book for all, and one bell.
            node.stats, node.on_moved = self.stats, self._stale.set
            node.start()
            self._nodes[host] = node
        slots: list[Store | None] = [None] * SLOTS
        for host, ranges in found.items():
            for begin, end in ranges:
                slots[begin : end + 1] = [self._nodes[host]] * (end + 1 - begin)
        self._slots = slots
        for host in self._nodes.keys() - found.keys():
            await self._nodes.pop(host).stop()
