"""Who may use the admin address: a token with a role, for every path that isn't open. Pure ASGI.

Tokens are those of the configuration and, where a provider is configured, its people's (`oidc.py`).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from router.admin.holder import Holder, Holders
from router.config.admin import AdminConfig

_READING = frozenset({"GET", "HEAD", "OPTIONS"})
_ALWAYS_OPEN = frozenset({"/healthz", "/readyz", "/docs", "/openapi.json"})
OWN_TOKEN = "operator"  # noqa: S105 - its name, not the token
"""Name of the token that Bitgear made itself."""


_NOBODY = "tuning"
"""Stands in the audit log for what Bitgear changed by itself (`router.tuning`)."""


class TokenSetupError(ValueError):
    """A token that cannot be used; the message names the field."""


class Tokens:
    """Known tokens by their SHA-256."""

    def __init__(self, holders: Mapping[str, Holder]) -> None:
        self._holders = dict(holders)
        self.names = frozenset(holder.name for holder in self._holders.values())
        """As the audit log knows them."""

    def holder(self, token: bytes) -> Holder | None:
        """Return whose token it is; None for an unknown one."""
        return self._holders.get(hashlib.sha256(token).hexdigest())


def read_tokens(config: AdminConfig, env: Mapping[str, str], own_file: Path | None) -> Tokens:
    """Return the configured tokens and the one in Bitgear's own file. Raises TokenSetupError."""
    holders: dict[str, Holder] = {}
    for name, token in config.tokens.items():
        digest = token.sha256
        if token.token_env is not None:
            value = env.get(token.token_env)
            if not value:
                raise TokenSetupError(f"admin.tokens.{name}.token_env: {token.token_env} is not set")
            digest = hashlib.sha256(value.encode()).hexdigest()
        holders[str(digest)] = Holder(name, token.role == "write")
    if own_file is not None:
        try:
            token_text = own_file.read_text().strip()
        except OSError as error:
            raise TokenSetupError(f"{own_file}: {error.strerror}") from None
        holders[hashlib.sha256(token_text.encode()).hexdigest()] = Holder(OWN_TOKEN, True)
    return Tokens(holders)


class Guard:
    """Lets through what is open, and what comes with a token of a sufficient role; `scope["state"]["holder"]` is its
    holder then."""

    def __init__(self, app: Any, tokens: Tokens, *, open_metrics: bool, people: Holders | None = None) -> None:
        self._app = app
        self._tokens = tokens
        self._people = people
        self._open = _ALWAYS_OPEN | ({"/metrics"} if open_metrics else set())

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """Serve one request, or refuse it with 401 or 403."""
        if scope["type"] != "http" or scope["path"] in self._open:
            await self._app(scope, receive, send)
            return
        token = presented(scope["headers"])
        holder = self._tokens.holder(token) if token is not None else None
        if holder is None and token is not None and self._people is not None:
            holder = await self._people(token)
            if holder is not None and (holder.name in self._tokens.names or holder.name == _NOBODY):
                # Whoever may choose a name at the provider is no token of that name in the audit log, nor Bitgear itself.
                holder = holder._replace(name=f"{holder.name} (OpenID)")
        if holder is None:
            what = "this token is not known" if token is not None else "send `Authorization: Bearer TOKEN`"
            await _refuse(send, 401, f"the admin API needs a token: {what}")
        elif scope["method"] not in _READING and not holder.writes:
            await _refuse(send, 403, f"the token {holder.name!r} may only read")
        elif scope["method"] not in _READING and _of_another_site(scope["headers"]):
            await _refuse(send, 403, "a browser sent this for another site's page")
        else:
            scope.setdefault("state", {})["holder"] = holder
            await self._app(scope, receive, send)


def presented(headers: list[tuple[bytes, bytes]]) -> bytes | None:
    """Return the token of a request: a bearer's, or the password of basic authentication, as browsers send it."""
    for name, value in headers:
        if name != b"authorization":
            continue
        scheme, _, rest = value.partition(b" ")
        if scheme.lower() == b"bearer":
            return rest.strip() or None
        if scheme.lower() == b"basic":
            try:
                return base64.b64decode(rest.strip(), validate=True).partition(b":")[2] or None
            except (binascii.Error, ValueError):
                return None
    return None


def _of_another_site(headers: list[tuple[bytes, bytes]]) -> bool:
    """Return whether a browser added the password that it knows to a request that another site's page made.

    Fetch Metadata, and `Origin` where a browser does not send that. A bearer token is in the hands of whoever sends it.
    """
    told = dict(headers)
    if told.get(b"authorization", b"")[:6].lower() != b"basic ":
        return False
    site, origin = told.get(b"sec-fetch-site"), told.get(b"origin")
    if site is not None:
        return site not in (b"same-origin", b"none")
    return origin is not None and origin.partition(b"://")[2] != told.get(b"host")


async def _refuse(send: Any, status: int, message: str) -> None:
    body = orjson.dumps({"error": {"message": message, "type": "authentication_error", "problems": []}})
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if status == 401:
        headers.append((b"www-authenticate", b'Bearer realm="bitgear admin"'))
        headers.append((b"www-authenticate", b'Basic realm="bitgear admin"'))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


__all__ = ["OWN_TOKEN", "Guard", "Holder", "TokenSetupError", "Tokens", "presented", "read_tokens"]
