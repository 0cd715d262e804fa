"""Who the master is, asked of Redis Sentinels. (https://redis.io/docs/latest/develop/reference/sentinel-clients/)"""

from __future__ import annotations

import contextlib
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

from router.cache.address import Address, parse_address
from router.cache.link import Refusal, connect

PORT = 26379
SCHEMES = ("redis+sentinel", "rediss+sentinel")


class NoMaster(OSError):  # noqa: N818 - what is the case, not an error of ours
    """No sentinel that answers knows a master; the message says what each said."""


class Sentinels(NamedTuple):
    """Sentinels, and the service whose master they name."""

    addresses: tuple[Address, ...]
    service: str
    server: Address
    """How to be let in by the master; its host and port mean nothing."""

    async def find(self, timeout_s: float) -> Address:
        """Return the master's address, as the first sentinel that answers in `timeout_s` names it. Raises NoMaster."""
        said: list[str] = []
        for address in self.addresses:
            where = f"{address.host}:{address.port}"
            try:
                link = await connect(address, timeout_s, lambda why, hung: None)
            except (OSError, Refusal) as error:
                said.append(f"{where}: {error or 'no answer'}")
                continue
            try:
                found: Any = await link.call("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.service)
            except (OSError, Refusal) as error:
                said.append(f"{where}: {error}")
            else:
                with contextlib.suppress(TypeError, ValueError, AttributeError):
                    host, port = found
                    return self.server._replace(host=host.decode(), port=int(port))
                said.append(f"{where}: knows no {self.service!r}")
            finally:
                link.end("done", False)
        raise NoMaster("no master: " + "; ".join(said))


def is_sentinel(url: str) -> bool:
    """Return whether the URL names sentinels."""
    return url.partition("://")[0] in SCHEMES


def parse_sentinels(url: str, password: str | None = None) -> Sentinels:
    """Return what `redis+sentinel://[user:password@]host[:port],host[:port]/service[/db]` names.

    User and password (`password` goes first) and TLS (`rediss+sentinel`) are the servers'; `sentinel_username` and
    `sentinel_password` in the query are the sentinels' own. Raises ValueError.
    """
    scheme, _, rest = url.partition("://")
    parts = urlsplit("//" + rest)
    login, _, hosts = parts.netloc.rpartition("@")
    service, _, db = parts.path.strip("/").partition("/")
    if not service or not hosts:
        raise ValueError("a Sentinel URL is redis+sentinel://host:port,host:port/service")
    plain = scheme.partition("+")[0]
    before = f"{plain}://{login}@" if login else f"{plain}://"
    server = parse_address(f"{before}sentinel.invalid/{db}?{parts.query}", password)
    query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    addresses = []
    for host in hosts.split(","):
        one = urlsplit("//" + host)
        addresses.append(
            Address(
                one.hostname or "127.0.0.1",
                one.port or PORT,
                username=query.get("sentinel_username"),
                password=query.get("sentinel_password"),
                tls=server.tls,
            )
        )
    return Sentinels(tuple(addresses), unquote(service), server)
