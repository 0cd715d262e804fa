"""A request's way through the cache: from it where it may, else upstream, once for all who ask the same."""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from router.cache.entry import Entry, Format, UnreadableEntry
from router.cache.flights import Flight, Flights, Landing
from router.cache.key import tenant_of_credential
from router.cache.lease import Lease
from router.cache.purge import Selection, purge
from router.cache.scripts import HELD_BY_OTHER, LEASE_TAKEN
from router.cache.stats import CacheStats
from router.cache.store import Store
from router.config.runtime import Runtime
from router.config.schema import CacheConfig
from router.proxy.carry import Carry
from router.proxy.client import Client, ClientLeft
from router.proxy.deciding import Decider, Question
from router.proxy.from_entry import FromEntry, Request
from router.proxy.json_body import Body
from router.proxy.nearest import Nearest
from router.proxy.outcome import Outcome
from router.proxy.planning import Headers, Plan, Planner
from router.proxy.resolve import Target
from router.proxy.semantic import Alike, Semantic
from router.proxy.surface import Endpoint

_FIRST_POLL_S = 0.02
_LONGEST_POLL_S = 0.25


class Caching:
    """One worker's cache: `plan` is asked for every request, `serve` for those it gives a plan for."""

    def __init__(
        self,
        runtime: Runtime,
        store: Store,
        form: Format,
        decider: Decider,
        log: logging.Logger,
        nearest: Mapping[str, Nearest],
        tenant_secret: bytes = b"",
        previous: Caching | None = None,
    ) -> None:
        self._config: CacheConfig = runtime.config.cache
        self.store = store
        self._form = form
        self._from_entry = FromEntry(decider)
        self._secret = tenant_secret
        self.flights: Flights = previous.flights if previous is not None else Flights()
        self._max_entry = int(self._config.max_entry_kib * 1024)
        self._lease_ms = round(self._config.lease_s * 1000)
        wanting = {n: g.cache.semantic for n, g in runtime.config.groups.items() if g.cache.semantic.enabled}
        self.semantic: Semantic = Semantic(
            store, form, wanting, log, nearest, previous.semantic if previous is not None else None
        )
        self._planner = Planner(runtime, self.semantic, tenant_secret, store.state != "off")
        self.unreadable: int = previous.unreadable if previous is not None else 0
        """Entries that could not be read."""

    def start(self) -> None:
        """Begin to connect; Redis need not be there."""
        if self._planner.wanted:
            self.store.start()
            if self.store.state != "off":
                self.semantic.start()

    async def stop(self) -> None:
        """Close the connections."""
        await self.semantic.stop()
        await self.store.stop()

    def stats(self) -> CacheStats:
        """Return the counts as of now."""
        store = self.store
        return CacheStats(
            store.state,
            store.writable,
            store.stats.bytes_read,
            store.stats.bytes_written,
            store.stats.lookups_failed,
            store.stats.writes_failed,
            store.stats.connections_lost,
            self.unreadable,
        )

    async def purge(self, selection: Selection, credential: str | None = None) -> int:
        """Take entries out, of the tenant with this credential where one is given; their number comes back.

        Raises OSError, TimeoutError, Refusal; ValueError where the selection means nothing or there is no Redis.
        """
        addresses = await self.store.locations()
        if not addresses:
            raise ValueError("there is no Redis")
        if credential is not None:
            selection = selection._replace(tenant=tenant_of_credential(credential.encode(), self._secret))
        return sum([await purge(address, selection) for address in addresses])

    def tenant(self, headers: Headers) -> str:
        """Return the digest by which a request's tenant is known."""
        return self._planner.tenant(headers)

    def plan(
        self, endpoint: Endpoint, target: Target, path: bytes, headers: Headers, raw: bytes, body: Body
    ) -> Plan | None:
        """Return what may be done for this request; None where the cache has no part in it."""
        return self._planner.plan(endpoint, target, path, headers, raw, body) if self.store.up else None

    async def serve(
        self, plan: Plan, client: Client, outcome: Outcome, question: Question, upstream: Callable[[], Awaitable[None]]
    ) -> None:
        """Answer from the cache, or by `upstream`, whose answer is kept where it may be."""
        outcome.cache, outcome.cache_key, outcome.tenant = "miss", plan.key.digest, plan.tenant
        await self._serve(Request(plan, client, outcome, question, upstream))
        if client.gone:
            # Its call went on for others.
            raise ClientLeft

    async def _serve(self, request: Request) -> None:
        plan, client = request.plan, request.client
        if plan.control.no_cache or plan.control.max_age_s == 0:
            await self._alone(request)
            return
        if not self._config.single_flight or self.flights.useless(plan.key.digest, time.monotonic()):
            if not await self._from_entry.answer(request, await self._look(plan, None)):
                await self._alone(request)
            return
        deadline = time.monotonic() + self._config.wait_s
        while (flight := self.flights.find(plan.key.digest)) is not None:
            left_s = deadline - time.monotonic()
            landing = await client.unless_left(flight.wait(max(0.0, left_s)))
            if landing == "left":
                continue
            if not (isinstance(landing, Entry) and await self._from_entry.answer(request, landing)):
                await self._alone(request)
            return
        await self._lead(request, self.flights.begin(plan.key.digest), deadline)

    async def _alone(self, request: Request) -> None:
        await request.upstream()
        await self._keep(request, None)

    async def _lead(self, request: Request, flight: Flight, deadline: float) -> None:
        """Look, else ask upstream, for all who ask the same meanwhile."""
        plan, digest = request.plan, request.plan.key.digest
        landing: Landing = "left"
        lease: Lease | None = None
        try:
            found = await self._look_or_lease(request, deadline)
            if isinstance(found, Lease):
                lease = found
            elif found is not None and self._from_entry.fitting(request, found) is not None:
                # Those who wait need not wait for this client to read.
                landing = found
                self.flights.end(digest, flight, landing)
                await self._from_entry.answer(request, found)
                return
            alike = await self.semantic.find(plan.wording, plan.key) if plan.wording is not None else None
            if alike is not None and not alike.check and self._from_entry.fitting(request, alike.entry) is not None:
                landing = alike.entry
                self.flights.end(digest, flight, landing)
                await self._from_entry.answer(request, alike.entry, alike.likeness)
                return
            with Carry(request.client, flight, self.store, plan.key if lease is not None else None):
                landing = await self._ask(request, flight, lease, alike)
        except ClientLeft:
            landing = "left"
            raise
        except Exception:
            # What failed for this one may fail for each: nobody waits for the next one's failure.
            landing = "alone"
            raise
        finally:
            if lease is not None:
                lease.end()
                if not lease.given_back:
                    self.store.lease(plan.key, lease.token, "alone" if landing == "alone" else "free")
            self.flights.end(digest, flight, landing)

    async def _ask(self, request: Request, flight: Flight, lease: Lease | None, alike: Alike | None) -> Landing:
        if lease is not None:
            lease.keep_alive(self.store, request.plan.key)
        request.client.hold(self._max_entry, partial(self._release, request, flight, lease))
        await request.upstream()
        entry = await self._keep(request, lease)
        if entry is not None and alike is not None and alike.check:
            agreed = await self.semantic.check(request.question.target.group.name, alike.entry, entry)
            request.outcome.cache_check = "confirmed" if agreed else "wrong"
        return entry or "alone"

    def _release(self, request: Request, flight: Flight, lease: Lease | None) -> None:
        """Let all who wait ask for themselves: the client reads too slowly for them."""
        key = request.plan.key
        self.flights.end(key.digest, flight, "alone")
        if lease is not None:
            lease.end()
            lease.given_back = True
            self.store.lease(key, lease.token, "alone")

    async def _look(self, plan: Plan, token: str | None) -> Entry | int | None:
        found = await self.store.look(plan.key, token, self._lease_ms)
        if not isinstance(found, bytes):
            return found
        try:
            entry = self._form.decode(found, plan.key.entry)
        except UnreadableEntry:
            self.unreadable += 1
            return None
        return entry if entry.kind == plan.asked.kind else None

    async def _look_or_lease(self, request: Request, deadline: float) -> Entry | Lease | None:
        token, pause = secrets.token_hex(8), _FIRST_POLL_S
        while True:
            found = await self._look(request.plan, token)
            if isinstance(found, Entry):
                return found
            if found == LEASE_TAKEN:
                return Lease(token, self._lease_ms)
            left_s = deadline - time.monotonic()
            if found != HELD_BY_OTHER or left_s <= 0:
                return None
            # Another worker asks upstream: its answer, or the end of its lease, shows here.
            await request.client.unless_left(asyncio.sleep(min(pause, left_s)))
            pause = min(pause * 1.5, _LONGEST_POLL_S)

    async def _keep(self, request: Request, lease: Lease | None) -> Entry | None:
        outcome, plan = request.outcome, request.plan
        variant = outcome.variant
        if not outcome.ok or variant is None or (variant.spec.last_resort and request.question.target.pin is None):
            # A last resort is another model: what it answers is no answer of the group's.
            return None
        now_ms = time.time_ns() // 1_000_000
        entry = await plan.capture.answer(plan.asked, variant.name, variant.spec.served_model, now_ms)
        data = self._form.encode(entry, plan.key.entry) if entry is not None else None
        if data is None:
            return None
        ttl_s = plan.ttl_s * (1 - self._config.ttl_jitter * random.random())
        ttl_ms = max(1, round(ttl_s * 1000))
        self.store.put(plan.key, data, ttl_ms, lease.token if lease is not None else None)
        if lease is not None:
            lease.given_back = True
        if plan.wording is not None:
            self.semantic.keep(plan.wording, plan.key, ttl_ms)
        return entry
