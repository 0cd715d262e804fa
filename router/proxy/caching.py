"""A request's way through the cache: from it where it may, else upstream, once for all who ask the same."""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

import orjson

from router.cache.answers import as_stream
from router.cache.capture import Asked, Capture
from router.cache.cluster import Cluster, is_cluster
from router.cache.entry import Entry, Format, UnreadableEntry
from router.cache.flights import Flight, Flights, Landing
from router.cache.key import Key, Place, request_key, tenant_of, tenant_of_credential
from router.cache.lease import Lease
from router.cache.purge import Selection, purge
from router.cache.revision import revisions
from router.cache.rules import Control, Requests, cacheable, read_control
from router.cache.scripts import HELD_BY_OTHER, LEASE_TAKEN
from router.cache.secret import CacheSetupError, read_secret
from router.cache.stats import CacheStats
from router.cache.store import Store
from router.config.runtime import Runtime
from router.config.schema import CacheConfig
from router.decision import Decision
from router.proxy.carry import Carry
from router.proxy.client import Client, ClientLeft
from router.proxy.deciding import Decider, Question
from router.proxy.headers import decision_header
from router.proxy.json_body import Body
from router.proxy.outcome import Outcome
from router.proxy.resolve import Target
from router.proxy.semantic import Alike, Semantic, Wording
from router.proxy.sse import rename_model
from router.proxy.surface import CHAT, Endpoint
from router.proxy.usage import Usage
from router.proxy.validation import output_limit

_PIECE = 64 * 1024
"""Bytes of a replayed stream that are sent at once: a slow reader holds up the rest."""
_FIRST_POLL_S = 0.02
_LONGEST_POLL_S = 0.25
Headers = list[tuple[bytes, bytes]]


class Plan(NamedTuple):
    """What the cache may do for one request."""

    key: Key
    control: Control
    asked: Asked
    ttl_s: float
    tenant: str
    usage: bool
    """Whether a stream is to tell its usage."""
    capture: Capture
    wording: Wording | None
    """Where the group takes answers to other wordings too."""


class _Settings(NamedTuple):
    requests: Requests
    ttl_s: float


class Caching:
    """One worker's cache: `plan` is asked for every request, `serve` for those it gives a plan for."""

    def __init__(
        self,
        runtime: Runtime,
        store: Store,
        form: Format,
        decider: Decider,
        log: logging.Logger,
        tenant_secret: bytes = b"",
        previous: Caching | None = None,
    ) -> None:
        self._config: CacheConfig = runtime.config.cache
        self.store = store
        self._form = form
        self._decider = decider
        self._secret = tenant_secret
        self._tenant_header = self._config.tenant_header.encode()
        self.flights: Flights = previous.flights if previous is not None else Flights()
        self._revisions = revisions(runtime)
        self._max_request = int(self._config.max_request_kib * 1024)
        self._max_entry = int(self._config.max_entry_kib * 1024)
        self._lease_ms = round(self._config.lease_s * 1000)
        self._groups = {name: self._settings(runtime, name) for name in runtime.groups()}
        wanting = {n: g.cache.semantic for n, g in runtime.config.groups.items() if g.cache.semantic.enabled}
        self.semantic: Semantic = Semantic(
            store, form, wanting, log, previous.semantic if previous is not None else None
        )
        self.unreadable: int = previous.unreadable if previous is not None else 0
        """Entries that could not be read."""

    def start(self) -> None:
        """Begin to connect; Redis need not be there."""
        if any(s.requests != "none" for s in self._groups.values()):
            self.store.start()

    async def stop(self) -> None:
        """Close the connection."""
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
        return tenant_of(headers, self._tenant_header, self._secret)

    def _settings(self, runtime: Runtime, group: str) -> _Settings:
        own = runtime.config.groups.get(group)
        if not self._config.enabled or self.store.state == "off":
            return _Settings("none", 0.0)
        if own is None:
            return _Settings(self._config.requests, self._config.ttl_s)
        return _Settings(own.cache.requests or self._config.requests, own.cache.ttl_s or self._config.ttl_s)

    def plan(
        self, endpoint: Endpoint, target: Target, path: bytes, headers: Headers, raw: bytes, body: Body
    ) -> Plan | None:
        """Return what may be done for this request; None where the cache has no part in it."""
        settings = self._groups[target.group.name]
        control = read_control(headers)
        if not cacheable(endpoint, body, control, settings.requests) or len(raw) > self._max_request:
            return None
        if not self.store.up:
            return None
        tenant = tenant_of(headers, self._tenant_header, self._secret)
        place = Place(target.group.name, target.pin, tenant, self._revisions[target.group.name, target.pin])
        key = request_key(path, raw, body, place)
        if key is None:
            return None
        asked = Asked(endpoint.name, output_limit(body) is not None)
        usage = bool((body.get("stream_options") or {}).get("include_usage"))
        wording = self.semantic.wording(path, raw, body, place) if endpoint is CHAT else None
        return Plan(key, control, asked, settings.ttl_s, tenant, usage, Capture(self._max_entry), wording)

    async def serve(
        self, plan: Plan, client: Client, outcome: Outcome, question: Question, upstream: Callable[[], Awaitable[None]]
    ) -> None:
        """Answer from the cache, or by `upstream`, whose answer is kept where it may be."""
        outcome.cache, outcome.cache_key, outcome.tenant = "miss", plan.key.digest, plan.tenant
        await self._serve(_Request(plan, client, outcome, question, upstream))
        if client.gone:
            # Its call went on for others.
            raise ClientLeft

    async def _serve(self, request: _Request) -> None:
        plan, client = request.plan, request.client
        if plan.control.no_cache or plan.control.max_age_s == 0:
            await self._alone(request)
            return
        if not self._config.single_flight or self.flights.useless(plan.key.digest, time.monotonic()):
            if not await self._from_entry(request, await self._look(plan, None)):
                await self._alone(request)
            return
        deadline = time.monotonic() + self._config.wait_s
        while (flight := self.flights.find(plan.key.digest)) is not None:
            left_s = deadline - time.monotonic()
            landing = await client.unless_left(flight.wait(max(0.0, left_s)))
            if landing == "left":
                continue
            if not (isinstance(landing, Entry) and await self._from_entry(request, landing)):
                await self._alone(request)
            return
        await self._lead(request, self.flights.begin(plan.key.digest), deadline)

    async def _alone(self, request: _Request) -> None:
        await request.upstream()
        await self._keep(request, None)

    async def _lead(self, request: _Request, flight: Flight, deadline: float) -> None:
        """Look, else ask upstream, for all who ask the same meanwhile."""
        plan, digest = request.plan, request.plan.key.digest
        landing: Landing = "left"
        lease: Lease | None = None
        try:
            found = await self._look_or_lease(request, deadline)
            if isinstance(found, Lease):
                lease = found
            elif found is not None and self._fitting(request, found) is not None:
                # Those who wait need not wait for this client to read.
                landing = found
                self.flights.end(digest, flight, landing)
                await self._from_entry(request, found)
                return
            alike = await self.semantic.find(plan.wording, plan.key) if plan.wording is not None else None
            if alike is not None and not alike.check and self._fitting(request, alike.entry) is not None:
                landing = alike.entry
                self.flights.end(digest, flight, landing)
                await self._from_entry(request, alike.entry, alike.likeness)
                return
            with Carry(request.client, flight, self.store, plan.key if lease is not None else None):
                landing = await self._ask(request, lease, alike)
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

    async def _ask(self, request: _Request, lease: Lease | None, alike: Alike | None) -> Landing:
        if lease is not None:
            lease.keep_alive(self.store, request.plan.key)
        await request.upstream()
        entry = await self._keep(request, lease)
        if entry is not None and alike is not None and alike.check:
            agreed = await self.semantic.check(request.question.target.group.name, alike.entry, entry)
            request.outcome.cache_check = "confirmed" if agreed else "wrong"
        return entry or "alone"

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

    async def _look_or_lease(self, request: _Request, deadline: float) -> Entry | Lease | None:
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

    async def _keep(self, request: _Request, lease: Lease | None) -> Entry | None:
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

    async def _from_entry(self, request: _Request, entry: Entry | int | None, likeness: float | None = None) -> bool:
        """Answer from an entry; False, with nothing sent, where it does not fit."""
        decision = self._fitting(request, entry)
        if decision is None or not isinstance(entry, Entry):
            return False
        outcome, plan, target = request.outcome, request.plan, request.question.target
        variant = target.group.variants[entry.variant]
        age_s = entry.age_s(time.time_ns() // 1_000_000)
        outcome.cache, outcome.cache_age_s, outcome.status = "hit", age_s, 200
        outcome.decision, outcome.variant = decision, variant
        outcome.cache_likeness = likeness
        alike = b"" if likeness is None else b"; likeness=%.2f" % likeness
        outcome.usage = Usage(entry.prompt_tokens, entry.completion_tokens)
        headers = [
            (b"x-request-id", outcome.request_id.encode()),
            (b"x-bitgear-cache", b"hit; age=%d" % age_s + alike),
            (b"age", b"%d" % age_s),
            (b"x-bitgear-decision", decision_header(target.group.name, decision, None, variant.spec.simulated)),
        ]
        body = as_stream(entry.body, entry.kind, plan.usage) if outcome.stream else entry.body
        if entry.served != target.asked:
            body = rename_model(body, orjson.dumps(entry.served), orjson.dumps(target.asked))
        if outcome.stream:
            await _replay(request.client, headers, body)
        else:
            await request.client.answer(200, [(b"content-type", b"application/json"), *headers], body)
        return True

    def _fitting(self, request: _Request, entry: Entry | int | None) -> Decision | None:
        """Return the decision by which the request takes this entry; None where it is too old, or not precise enough.

        The request's own decision is made as if the answer were still to be had: an entry serves where that allows
        its precision. Of vectors, and under the policy of full precision, that is the highest one alone.
        """
        if not isinstance(entry, Entry):
            return None
        limit_s = request.plan.control.max_age_s
        if limit_s is not None and entry.age_s(time.time_ns() // 1_000_000) > limit_s:
            return None
        question = request.question
        decision = self._decider.decide(question, time.monotonic())
        candidate = next((c for c in decision.candidates if c.variant == entry.variant), None)
        bound = question.facts.max_risk
        if candidate is None or (bound is not None and candidate.risk > bound):
            return None
        if question.target.pin is None and not candidate.allowed:
            return None
        # Nothing was chosen: neither the choice's propensity nor an exploration means anything here.
        return decision._replace(
            variant=entry.variant,
            reason="cached",
            risk=candidate.risk,
            threshold=candidate.threshold,
            propensity=1.0,
            propensities=tuple(0.0 for _ in decision.candidates),
            explored=False,
        )


class _Request(NamedTuple):
    plan: Plan
    client: Client
    outcome: Outcome
    question: Question
    upstream: Callable[[], Awaitable[None]]


async def _replay(client: Client, headers: Headers, body: bytes) -> None:
    stream = [
        (b"content-type", b"text/event-stream; charset=utf-8"),
        (b"cache-control", b"no-cache"),
        (b"x-accel-buffering", b"no"),
    ]
    await client.start(200, [*stream, *headers])
    for begin in range(0, len(body) - _PIECE, _PIECE):
        await client.write(body[begin : begin + _PIECE])
    rest = len(body) % _PIECE or _PIECE
    await client.finish(body[-rest:])


def build_caching(
    runtime: Runtime,
    decider: Decider,
    env: Mapping[str, str],
    log: logging.Logger,
    previous: Caching | None = None,
) -> Caching:
    """Return the cache as the configuration describes it. Raises CacheSetupError.

    With a `previous` one it shares that one's connection and the calls that identical requests wait for.
    """
    config, redis = runtime.config.cache, runtime.config.redis
    secret = read_secret(config.encryption_key_env, env) if config.enabled else None
    password = env.get(redis.password_env) if redis.password_env else None
    url = (config.url or runtime.redis_url) if config.enabled else None
    try:
        kind: Callable[..., Store] = Cluster if is_cluster(url or "") else Store
        store = (
            previous.store
            if previous is not None
            else kind(url, password=password, timeout_s=config.timeout_ms / 1000, log=log)
        )
    except (ValueError, OSError) as error:
        raise CacheSetupError(f"redis.url: {error}") from None
    form = Format(
        compress_above=config.compress_above_bytes,
        max_bytes=int(config.max_entry_kib * 1024),
        cipher=secret.cipher if secret is not None else None,
    )
    return Caching(runtime, store, form, decider, log, secret.tenants if secret is not None else b"", previous)
