"""Entries in Redis, and what becomes of requests while Redis is away: nothing but a miss.

One task holds the connection. As soon as one command is late, everything that waits fails at once and requests no
longer ask, until the task has a connection again: a hanging Redis costs one timeout, once. Each change of state is one
log line.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from router.background import Background
from router.cache.address import Address, parse_address
from router.cache.key import Key
from router.cache.link import Link, LinkLost, Refusal, connect
from router.cache.scripts import AUDIT, AUDIT_SHA, GO_ALONE, LEASE, LEASE_SHA, LOOK, LOOK_SHA
from router.cache.sentinel import Sentinels, is_sentinel, parse_sentinels
from router.config.problems import masked

State = Literal["off", "starting", "up", "down", "stopped"]
FIRST_PAUSE_S = 0.25
LONGEST_PAUSE_S = 2.0
"""Between two tries to reach a server that is away, and between two writes to one that takes none, seconds. A try costs
no request anything, and each second without is one without the cache."""
FOLLOW_PAUSE_S = 1.0
"""The longest behind Sentinels: to ask them costs nothing, and a new master may be named at any moment, seconds."""
STEADY_S = 5.0
"""A connection that lived this long lets the pauses begin anew, seconds."""
WANTED_MS = 1000
"""How long after its last look somebody counts as waiting; several times the pause between two looks."""
ALONE_MS = 1000
"""How long others are told not to wait, after an answer that could not be kept."""


@dataclass(slots=True)
class StoreStats:
    """Counts since the start."""

    bytes_read: int = 0
    bytes_written: int = 0
    lookups_failed: int = 0
    writes_failed: int = 0
    connections_lost: int = 0


class Store:
    """The worker's way to Redis. `url` None: there is none, and every look-up says so."""

    def __init__(
        self, url: str | Address | None, *, password: str | None, timeout_s: float, log: logging.Logger
    ) -> None:
        self._where = f"{url.host}:{url.port}" if isinstance(url, Address) else masked(url or "")
        self._place: Address | Sentinels | None = None
        if isinstance(url, Address):
            self._place = url
        elif url:
            self._place = parse_sentinels(url, password) if is_sentinel(url) else parse_address(url, password)
        self._longest_pause = FOLLOW_PAUSE_S if isinstance(self._place, Sentinels) else LONGEST_PAUSE_S
        self._timeout_s = timeout_s
        self._log = log
        self._link: Link | None = None
        self._lost = asyncio.Event()
        self._hung = False
        self._why = ""
        self._task = Background("cache")
        self._scripts = True
        self._writes_at = 0.0
        self._write_pause = 0.0
        self.state: State = "starting" if url else "off"
        self.stats = StoreStats()
        self.on_moved: Callable[[], None] | None = None
        """Called when a node of a cluster says that a key is another one's."""

    @property
    def up(self) -> bool:
        """Whether a look-up would be asked."""
        return self._link is not None

    @property
    def writable(self) -> bool:
        """Whether the server took the last write."""
        return self._write_pause == 0.0

    def start(self) -> None:
        """Begin to connect, in a task of the running loop. Redis need not be there."""
        if self._place is not None:
            self._task.start(self._run)

    async def locate(self) -> Address | None:
        """Return where the entries are now; None where there is no Redis. Raises OSError when no Sentinel knows."""
        if isinstance(self._place, Sentinels):
            return await self._place.find(self._timeout_s)
        return self._place

    async def stop(self) -> None:
        """Close; waiting writes have been sent or are lost."""
        await self._task.stop()
        if self._link is not None:
            self._link.end("stopped", False)
        if self.state != "off":
            self.state = "stopped"

    async def locations(self) -> list[Address]:
        """Return every server that has entries. Raises OSError when no Sentinel knows."""
        place = await self.locate()
        return [] if place is None else [place]

    async def look(self, key: Key, token: str | None, lease_ms: int) -> bytes | int | None:
        """Return the entry's bytes, or what there is instead: LEASE_TAKEN, HELD_BY_OTHER, GO_ALONE.

        Without a `token` no lease is asked for. None: Redis did not answer.
        """
        link = self._link
        if link is None:
            return None
        try:
            if token is None or not self._scripts:
                answer = await link.call("GET", key.entry)
                answer = GO_ALONE if answer is None else answer
            else:
                answer = await link.call(
                    "EVALSHA", LOOK_SHA, 3, key.entry, key.lease, key.wanted, token, lease_ms, WANTED_MS
                )
        except LinkLost:
            self.stats.lookups_failed += 1
            return None
        except Refusal as refusal:
            self.stats.lookups_failed += 1
            self._refused(link, str(refusal))
            return None
        if isinstance(answer, bytes):
            self.stats.bytes_read += len(answer)
            return answer
        return answer if isinstance(answer, int) else None

    async def wanted(self, key: Key) -> bool:
        """Return whether somebody in another worker waits for this entry; False where Redis does not answer."""
        link = self._link
        if link is None:
            return False
        try:
            return bool(await link.call("EXISTS", key.wanted))
        except (LinkLost, Refusal):
            return False

    async def audit(self, name: str, *arguments: str) -> list[bytes | int] | None:
        """Run AUDIT on the books `name`; None where Redis does not answer, or takes no scripts."""
        link = self._link
        if link is None or not self._scripts:
            return None
        try:
            answer = await link.call("EVALSHA", AUDIT_SHA, 1, name, *arguments)
        except LinkLost:
            return None
        except Refusal as refusal:
            self._refused(link, str(refusal))
            return None
        return answer if isinstance(answer, list) else None

    async def feed(self, name: str, after: str, most: int) -> list[tuple[str, bytes]]:
        """Return up to `most` rows (id, bytes) that stand in the stream `name` after the id `after`.

        Empty where there are none, or Redis does not answer, or does not let its user read them.
        """
        link = self._link
        if link is None:
            return []
        try:
            answer = await link.call("XREAD", "COUNT", most, "STREAMS", name, after)
        except LinkLost:
            return []
        except Refusal as refusal:
            self._has_moved(str(refusal))
            return []
        return [(row.decode(), fields[1]) for row, fields in answer[0][1]] if answer else []

    def append(self, name: str, data: bytes, most: int, ttl_ms: int) -> None:
        """Add a row to a stream of about `most`, that lives `ttl_ms` from now; the answer does not matter."""
        if self._link is None or not self.writable:
            return
        row = ("XADD", name, "MAXLEN", "~", most, "*", "v", data)
        answer = self._link.send(row, ("PEXPIRE", name, ttl_ms))
        if answer is not None:
            answer.add_done_callback(_forget)

    def put(self, key: Key, data: bytes, ttl_ms: int, token: str | None) -> None:
        """Keep an entry and give the lease back, without waiting for the answer."""
        commands: list[tuple[bytes | str | int, ...]] = [("SET", key.entry, data, "PX", ttl_ms)]
        if token is not None and self._scripts:
            commands.append(("EVALSHA", LEASE_SHA, 1, key.lease, token, "free", 0))
        now = asyncio.get_running_loop().time()
        link = self._link
        if link is None or now < self._writes_at:
            self.stats.writes_failed += 1
            self.lease(key, token, "free")
            return
        answer = link.send(*commands)
        if answer is None:
            self.stats.writes_failed += 1
            return
        answer.add_done_callback(partial(self._written, len(data)))

    def lease(self, key: Key, token: str | None, what: Literal["renew", "alone", "free"], ms: int = ALONE_MS) -> None:
        """Renew a lease for `ms`, free it, or tell others for `ms` not to wait; the answer does not matter."""
        if token is None or not self._scripts or self._link is None:
            return
        answer = self._link.send(("EVALSHA", LEASE_SHA, 1, key.lease, token, what, ms))
        if answer is not None:
            answer.add_done_callback(_forget)

    def _written(self, size: int, answer: asyncio.Future[Any]) -> None:
        # A callback, not a task: this happens once for each miss.
        refusal = None if answer.cancelled() else answer.exception()
        if answer.cancelled() or isinstance(refusal, LinkLost):
            self.stats.writes_failed += 1
        elif isinstance(refusal, Refusal):
            self.stats.writes_failed += 1
            self._follow_master(str(refusal))
            if self._has_moved(str(refusal)):
                return
            if self._write_pause == 0.0:
                self._log.warning("cache: %s takes no writes (%s); answers are not kept", self._where, refusal)
            self._write_pause = min(max(FIRST_PAUSE_S, self._write_pause * 2), LONGEST_PAUSE_S)
            self._writes_at = asyncio.get_running_loop().time() + self._write_pause
        else:
            self.stats.bytes_written += size
            if self._write_pause:
                self._write_pause = 0.0
                self._log.info("cache: %s takes writes again", self._where)

    def _refused(self, link: Link, why: str) -> None:
        if self._has_moved(why):
            return
        if why.startswith("NOSCRIPT"):
            # The scripts were flushed, or another server answers at the same address now.
            for script in (LOOK, LEASE, AUDIT):
                link.call("SCRIPT", "LOAD", script).add_done_callback(_forget)
        elif "OOM" not in why and "READONLY" not in why:
            link.end(why, True)
        else:
            self._follow_master(why)

    def _has_moved(self, why: str) -> bool:
        if self.on_moved is None or not why.startswith(("MOVED", "ASK", "CLUSTERDOWN", "TRYAGAIN")):
            return False
        self.on_moved()
        return True

    def _follow_master(self, why: str) -> None:
        """Behind Sentinels a server that takes no writes is the master no more: ask them again."""
        if isinstance(self._place, Sentinels) and "READONLY" in why and self._link is not None:
            self._link.end(why, False)

    async def _run(self) -> None:
        pause = FIRST_PAUSE_S
        loop = asyncio.get_running_loop()
        while True:
            why = await self._open()
            if why is None:
                self._change("up", "")
                began = loop.time()
                await self._lost.wait()
                self._link = None
                self.stats.connections_lost += 1
                why = self._why
                if loop.time() - began > STEADY_S:
                    pause = FIRST_PAUSE_S
                    if not self._hung:
                        # Closed in good order, most likely for being idle: a new connection is worth one try.
                        continue
            self._change("down", why)
            await asyncio.sleep(pause)
            pause = min(pause * 2, self._longest_pause)

    async def _open(self) -> str | None:
        """Connect; give the reason where it failed."""
        self._lost.clear()
        try:
            address = await self.locate()
            assert address is not None
            link = await connect(address, self._timeout_s, self._on_lost)
            if isinstance(self._place, Sentinels) and (await link.call("ROLE"))[0] != b"master":
                link.end("not the master", False)
                return f"{address.host}:{address.port} is not the master any more"
            self._scripts = await self._load_scripts(link)
        except TimeoutError:
            return f"no answer in {self._timeout_s:g} s"
        except (OSError, Refusal) as error:
            return masked(str(error)) or type(error).__name__
        if not self._lost.is_set():
            self._link = link
        return None

    async def _load_scripts(self, link: Link) -> bool:
        try:
            for script in (LOOK, LEASE, AUDIT):
                await link.call("SCRIPT", "LOAD", script)
        except Refusal:
            # A user without the right to run scripts: entries alone then, no lease across workers.
            return False
        return True

    def _on_lost(self, why: str, hung: bool) -> None:
        self._link = None
        self._why, self._hung = why, hung
        self._lost.set()

    def _change(self, state: State, reason: str) -> None:
        before, self.state = self.state, state
        if before == state:
            return
        if state == "down":
            self._log.warning("cache: %s is away (%s); requests go on without it", self._where, reason)
        elif before == "down":
            self._log.info("cache: %s is back", self._where)


def _forget(future: asyncio.Future[Any]) -> None:
    with contextlib.suppress(asyncio.CancelledError):
        future.exception()
