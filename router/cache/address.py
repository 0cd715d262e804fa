"""A Redis URL, taken apart."""

from __future__ import annotations

import ssl
from typing import NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit


class Address(NamedTuple):
    """Where one server is, and how to be let in."""

    host: str = "127.0.0.1"
    port: int = 6379
    path: str | None = None
    """Unix socket; then host and port mean nothing."""
    username: str | None = None
    password: str | None = None
    db: int = 0
    tls: ssl.SSLContext | None = None

    def greeting(self) -> list[tuple[bytes | str | int, ...]]:
        """Return the commands with which a connection begins."""
        commands: list[tuple[bytes | str | int, ...]] = []
        if self.password is not None:
            user = (self.username,) if self.username else ()
            commands.append(("AUTH", *user, self.password))
        if self.db:
            commands.append(("SELECT", self.db))
        return commands


def parse_address(url: str, password: str | None = None) -> Address:
    """Return the address in a `redis://`, `rediss://` or `unix://` URL; `password` goes before the URL's own.

    Raises ValueError for another scheme or a number that is none.
    """
    parts = urlsplit(url)
    query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    user = unquote(parts.username) if parts.username else query.get("username")
    word = password or (unquote(parts.password) if parts.password else query.get("password"))
    if parts.scheme == "unix":
        return Address(path=unquote(parts.path), username=user, password=word, db=int(query.get("db", 0)))
    if parts.scheme not in ("redis", "rediss"):
        raise ValueError("not a redis://, rediss:// or unix:// URL")
    db = int(query.get("db") or parts.path.strip("/") or 0)
    tls = _tls(query) if parts.scheme == "rediss" else None
    return Address(parts.hostname or "127.0.0.1", parts.port or 6379, None, user, word, db, tls)


def _tls(query: dict[str, str]) -> ssl.SSLContext:
    # The same names as redis-py's, which writes the events over the same URL.
    context = ssl.create_default_context(cafile=query.get("ssl_ca_certs"))
    if query.get("ssl_check_hostname", "true").lower() in ("false", "no", "0"):
        context.check_hostname = False
    if query.get("ssl_cert_reqs", "required").lower() == "none":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if "ssl_certfile" in query:
        context.load_cert_chain(query["ssl_certfile"], query.get("ssl_keyfile"))
    return context
