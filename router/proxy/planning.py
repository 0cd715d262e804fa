"""What the cache may do for a request, and under which key."""

from __future__ import annotations

from typing import NamedTuple

from router.cache.capture import Asked, Capture
from router.cache.key import Key, Place, request_key, tenant_of
from router.cache.revision import revisions
from router.cache.rules import Control, Requests, cacheable, read_control
from router.config.runtime import Runtime
from router.proxy.json_body import Body
from router.proxy.nearest import Turn
from router.proxy.resolve import Target
from router.proxy.semantic import Semantic, Wording
from router.proxy.surface import CHAT, Endpoint
from router.proxy.validation import output_limit

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
    wording: Wording | Turn | None
    """Where the group takes answers to other wordings too."""


class _Settings(NamedTuple):
    requests: Requests
    ttl_s: float


class Planner:
    """Makes a plan for each request; `usable` false: there is no cache for any."""

    def __init__(self, runtime: Runtime, semantic: Semantic, tenant_secret: bytes, usable: bool) -> None:
        self._config = runtime.config.cache
        self._semantic = semantic
        self._secret = tenant_secret
        self._tenant_header = self._config.tenant_header.encode()
        self._revisions = revisions(runtime)
        self._max_request = int(self._config.max_request_kib * 1024)
        self._max_entry = int(self._config.max_entry_kib * 1024)
        self._usable = usable and self._config.enabled
        self._groups = {name: self._settings(runtime, name) for name in runtime.groups()}

    @property
    def wanted(self) -> bool:
        """Whether any group uses the cache."""
        return any(s.requests != "none" for s in self._groups.values())

    def tenant(self, headers: Headers) -> str:
        """Return the digest by which a request's tenant is known."""
        return tenant_of(headers, self._tenant_header, self._secret)

    def _settings(self, runtime: Runtime, group: str) -> _Settings:
        own = runtime.config.groups.get(group)
        if not self._usable:
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
        tenant = self.tenant(headers)
        place = Place(target.group.name, target.pin, tenant, self._revisions[target.group.name, target.pin])
        key = request_key(path, raw, body, place)
        if key is None:
            return None
        asked = Asked(endpoint.name, output_limit(body) is not None)
        usage = bool((body.get("stream_options") or {}).get("include_usage"))
        wording = self._semantic.wording(path, raw, body, place) if endpoint is CHAT else None
        return Plan(key, control, asked, settings.ttl_s, tenant, usage, Capture(self._max_entry), wording)
