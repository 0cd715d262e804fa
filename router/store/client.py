"""redis-py's client for any of Bitgear's Redis URLs, one server or Sentinels; for whatever is not on the hot path."""

from __future__ import annotations

from typing import Any

from redis.asyncio import Redis, Sentinel

from router.cache.sentinel import is_sentinel, parse_sentinels


def open_client(url: str, *, password: str | None = None, timeout_s: float, **options: Any) -> Redis:
    """Return a client that connects when it is first used; behind Sentinels it follows the master.

    `timeout_s` bounds connecting and each answer; `options` are redis-py's. Raises ValueError for a URL that is none.
    """
    limits = {"socket_timeout": timeout_s, "socket_connect_timeout": timeout_s, **options}
    if not is_sentinel(url):
        if password is not None:
            limits["password"] = password
        client: Redis = Redis.from_url(url, **limits)
        return client
    found = parse_sentinels(url, password)
    login: dict[str, Any] = {
        "username": found.server.username,
        "password": found.server.password,
        "db": found.server.db,
    }
    secure = _secure(found.server.tls)
    own = found.addresses[0]
    sentinel = Sentinel(  # type: ignore[no-untyped-call]
        [(a.host, a.port) for a in found.addresses],
        sentinel_kwargs={"username": own.username, "password": own.password, "socket_timeout": timeout_s, **secure},
        **limits,
        **login,
        **secure,
    )
    master: Redis = sentinel.master_for(found.service)
    return master


def _secure(tls: object) -> dict[str, Any]:
    if tls is None:
        return {}
    import ssl

    assert isinstance(tls, ssl.SSLContext)
    return {"ssl": True, "ssl_check_hostname": tls.check_hostname, "ssl_cert_reqs": tls.verify_mode}
