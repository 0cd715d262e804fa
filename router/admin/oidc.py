"""People of an OpenID Connect provider: who a signed token (JWT) says they are, and what they may do.

OpenID Connect Core 1.0, section 3.1.3.7 (issuer, audience, signature, expiry) and Discovery 1.0; keys are a JWK set (RFC 7517). Only
asymmetric signatures count, so a provider's public key can never serve as a shared secret (RFC 8725, section 3.1).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import jwt

from router.admin.holder import Holder
from router.config.admin import OidcConfig

_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
_LONGEST = 16_384
"""Bytes of a token."""
_LARGEST = 1_048_576
"""Bytes of a provider's answer."""
_AGAIN_S = 30.0
"""Between two looks at the provider's keys, whatever tokens come."""
_LONGEST_LOOK_S = 5.0
"""For one answer of the provider."""
_FRESH_S = 3600.0
_LEEWAY_S = 30.0
Fetch = Callable[[str], Awaitable[Any]]
"""URL to the JSON there. Raises OSError or ValueError."""


class Oidc:
    """Checks tokens against a provider's keys, which are fetched when they are needed and kept for an hour."""

    def __init__(
        self, config: OidcConfig, fetch: Fetch, log: logging.Logger, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._config = config
        self._fetch = fetch
        self._log = log
        self._clock = clock
        self._keys: dict[str, Any] = {}
        self._tried_at = self._got_at = float("-inf")
        self._one_at_a_time = asyncio.Lock()

    async def holder(self, token: bytes) -> Holder | None:
        """Return whose token it is, and whether they may write; None where it is not good, or its holder may nothing."""
        if len(token) > _LONGEST or token.count(b".") != 2:
            return None
        try:
            head = jwt.get_unverified_header(token)
        except (jwt.InvalidTokenError, ValueError, RecursionError):
            return None
        key = await self._key(head.get("kid"))
        if key is None:
            return None
        try:
            claims = jwt.decode(
                token,
                key,
                algorithms=_ALGORITHMS,
                audience=self._config.audience,
                issuer=self._config.issuer,
                leeway=_LEEWAY_S,
                options={"require": ["exp", "iss", "aud"]},
            )
        except (jwt.PyJWTError, TypeError, ValueError, RecursionError) as error:
            self._log.info("admin: a token of %s is refused: %s", self._config.issuer, error)
            return None
        return self._holder(claims)

    def _holder(self, claims: Mapping[str, Any]) -> Holder | None:
        config = self._config
        name = claims.get(config.name_claim) or claims.get("sub")
        # It stands in the audit log and on terminals.
        if not isinstance(name, str) or not name or not name.isprintable():
            return None
        given = claims.get(config.role_claim)
        listed = [given] if isinstance(given, str) else given if isinstance(given, list) else []
        roles = {role for role in listed if isinstance(role, str)}
        writes = bool(roles & set(config.write_roles))
        if not writes and config.read_roles and not roles & set(config.read_roles):
            return None
        return Holder(name[:200], writes)

    async def _key(self, name: Any) -> Any:
        known = None if name is None else str(name)
        strange = known is not None and known not in self._keys
        old = self._clock() - self._got_at > _FRESH_S
        # Whose key is known need not wait while another one's look lasts: the provider may be slow.
        if strange or (old and not (self._keys and self._one_at_a_time.locked())):
            async with self._one_at_a_time:
                if self._clock() - self._tried_at > _AGAIN_S:
                    await self._look()
        if known is None:
            # A token without a key's name can only be of a provider with one key.
            return next(iter(self._keys.values())) if len(self._keys) == 1 else None
        return self._keys.get(known)

    async def _look(self) -> None:
        self._tried_at = self._clock()
        config = self._config
        try:
            where = config.jwks_url
            if where is None:
                found = await self._fetch(config.issuer.rstrip("/") + "/.well-known/openid-configuration")
                where = str(found["jwks_uri"])
                if config.issuer.startswith("https:") and not where.startswith("https:"):
                    raise ValueError("its keys are not at an https URL")
            keys = _keys(await self._fetch(where))
        except (OSError, ValueError, KeyError, TypeError) as error:
            # Keys that are known go on being good: a provider that is away locks nobody out.
            self._log.warning("admin: keys of %s cannot be had: %s", config.issuer, error)
            return
        self._keys, self._got_at = keys, self._clock()


def _keys(content: Any) -> dict[str, Any]:
    found = {}
    for one in content["keys"]:
        if not isinstance(one, dict) or one.get("kty") == "oct" or one.get("use", "sig") != "sig":
            continue
        if one.get("alg", _ALGORITHMS[0]) not in _ALGORITHMS:
            continue
        try:
            key = jwt.PyJWK(one)
        except (jwt.PyJWTError, TypeError, ValueError, LookupError, AttributeError):
            # A kind of key that is not known here is another token's.
            continue
        found[str(one.get("kid", ""))] = key
    return found


async def fetch_json(url: str) -> Any:
    """Return the JSON at a URL. Raises OSError, or ValueError where there is none."""
    import httpx

    try:
        async with (
            # Whatever it sends, and however slowly.
            asyncio.timeout(_LONGEST_LOOK_S),
            httpx.AsyncClient(trust_env=False, timeout=_LONGEST_LOOK_S) as client,
            client.stream("GET", url) as answer,
        ):
            answer.raise_for_status()
            body = b""
            async for piece in answer.aiter_bytes():
                body += piece
                if len(body) > _LARGEST:
                    raise ValueError(f"{url}: more than {_LARGEST} bytes")
    except (httpx.HTTPError, httpx.InvalidURL, TimeoutError) as error:
        raise OSError(f"{url}: {error!s:.200}" if str(error) else f"{url}: {type(error).__name__}") from None
    import orjson

    return orjson.loads(body)


__all__ = ["Fetch", "Oidc", "fetch_json"]
