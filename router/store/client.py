"""redis-py's clients for any of Bitgear's Redis URLs, one server or Sentinels; for whatever is not on the hot path."""

from __future__ import annotations

from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

import redis
from redis.asyncio import Redis, Sentinel

from router.cache.sentinel import is_sentinel, parse_sentinels

_TLS = ("ssl_ca_certs", "ssl_cert_reqs", "ssl_check_hostname", "ssl_certfile", "ssl_keyfile")


def open_client(url: str, *, password: str | None = None, timeout_s: float, **options: Any) -> Redis:
    """Return a client that connects when it is first used; behind Sentinels it follows the master.

    `timeout_s` bounds connecting and each answer; `options` are redis-py's; `password` goes before the URL's own.
    TLS options stand in the URL's query, by redis-py's names. Raises ValueError for a URL that is none.
    """
    limits = _limits(password, timeout_s, options)
    if not is_sentinel(url):
        client: Redis = Redis.from_url(url, **limits)
        return client
    found = _behind(url, password, timeout_s)
    watch = Sentinel(found.hosts, sentinel_kwargs=found.own, **limits, **found.server)  # type: ignore[no-untyped-call]
    master: Redis = watch.master_for(found.service)
    return master


def open_blocking(url: str, *, password: str | None = None, timeout_s: float, **options: Any) -> redis.Redis:
    """Return what `open_client` does, for code outside an event loop."""
    limits = _limits(password, timeout_s, options)
    if not is_sentinel(url):
        client: redis.Redis = redis.Redis.from_url(url, **limits)
        return client
    from redis.sentinel import Sentinel as Blocking

    found = _behind(url, password, timeout_s)
    watch = Blocking(found.hosts, sentinel_kwargs=found.own, **limits, **found.server)  # type: ignore[no-untyped-call]
    master: redis.Redis = watch.master_for(found.service)  # type: ignore[no-untyped-call]
    return master


class _Behind(NamedTuple):
    hosts: list[tuple[str, int]]
    service: str
    own: dict[str, Any]
    """How to be let in by the sentinels."""
    server: dict[str, Any]
    """How to be let in by the master."""


def _limits(password: str | None, timeout_s: float, options: dict[str, Any]) -> dict[str, Any]:
    limits = {"socket_timeout": timeout_s, "socket_connect_timeout": timeout_s, **options}
    return limits if password is None else {**limits, "password": password}


def _behind(url: str, password: str | None, timeout_s: float) -> _Behind:
    found = parse_sentinels(url, password)
    secure = _secure(url) if found.server.tls is not None else {}
    own = found.addresses[0]
    limits = {"socket_timeout": timeout_s, "socket_connect_timeout": timeout_s}
    login = {"username": found.server.username, "db": found.server.db, **secure}
    if password is None:
        login["password"] = found.server.password
    return _Behind(
        [(a.host, a.port) for a in found.addresses],
        found.service,
        {"username": own.username, "password": own.password, **limits, **secure},
        login,
    )


def _secure(url: str) -> dict[str, Any]:
    query = {name: values[-1] for name, values in parse_qs(urlsplit(url).query).items()}
    found: dict[str, Any] = {name: query[name] for name in _TLS if name in query}
    checked = query.get("ssl_check_hostname", "true").lower() not in ("false", "no", "0")
    # As `router.cache.address` has it: without a certificate there is no name to check.
    found["ssl_check_hostname"] = checked and query.get("ssl_cert_reqs", "required").lower() != "none"
    return {"ssl": True, **found}


__all__ = ["open_blocking", "open_client"]
