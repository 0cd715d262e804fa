"""All keys as the hot path sees them: one look into a dictionary, limits by what is known of all workers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from router.keys.pace import Pace, Usage
from router.keys.places import Claim, Claims
from router.keys.record import KeyRecord, digest
from router.proxy.errors import ApiError

_BEARER = b"bearer "


class Admitted:
    """One request's permission; give it back with `release`."""

    __slots__ = ("_claim", "_claims", "key", "name", "record")

    def __init__(self, name: str, record: KeyRecord, claims: Claims, claim: Claim, key: bytes = b"") -> None:
        self.name = name
        self.key = key
        self.record = record
        self._claims = claims
        self._claim = claim

    def release(self) -> None:
        """The request has ended."""
        self._claims.leave(self.record.sha256, self._claim)

    def check_group(self, group: str) -> None:
        """Raise ApiError 403 where the key may not use this group."""
        if not self.may_use(group):
            raise ApiError(403, f"This API key may not use the model {group!r}.", "model", "model_not_allowed")

    def may_use(self, group: str) -> bool:
        """Return whether the key may use this group."""
        return not self.record.groups or group in self.record.groups


class _Key(NamedTuple):
    name: str
    record: KeyRecord
    usage: Usage
    claim: Claim


class KeyTable:
    """Keys by their digest. With a `previous` table the counts of keys that stay go on."""

    def __init__(
        self,
        records: Mapping[str, KeyRecord],
        previous: KeyTable | None = None,
        clock: Callable[[], float] = time.time,
        claims: Claims | None = None,
    ) -> None:
        self._claims = claims if claims is not None else Claims(Pace())
        self._clock = clock
        self._by_digest: dict[str, _Key] = {}
        for name, record in records.items():
            last = previous._by_digest.get(record.sha256) if previous is not None else None
            usage, claim = (last.usage, last.claim) if last is not None else (Usage(), Claim())
            self._by_digest[record.sha256] = _Key(name, record, usage, claim)

    def __len__(self) -> int:
        return len(self._by_digest)

    async def admit(self, headers: Iterable[tuple[bytes, bytes]], now: float) -> Admitted:
        """Return the permission of the key in `authorization` or `x-api-key`; `now` is the monotonic clock.

        Raises ApiError: 401 without a known key, 403 for one that is disabled or expired, 429 with Retry-After above
        a limit. Waits only for a key with a limit of requests at once, where this worker holds no place of it.
        """
        key = _key_of(headers)
        if key is None:
            raise ApiError(401, "No API key: send `Authorization: Bearer KEY`.", None, "missing_api_key")
        found = self._by_digest.get(digest(key))
        if found is None:
            raise ApiError(401, "Incorrect API key provided.", None, "invalid_api_key")
        name, record, usage, claim = found
        if record.disabled:
            raise ApiError(403, "This API key is disabled.", None, "api_key_disabled")
        if record.expires is not None and self._clock() >= record.expires:
            raise ApiError(403, "This API key has expired.", None, "api_key_expired")
        if record.max_concurrent is None:
            self._claims.count(claim)
        elif not await self._claims.enter(record.sha256, claim, record.max_concurrent, now):
            words = f"This API key has as many requests in flight as it may: {record.max_concurrent}."
            raise ApiError(429, words, None, "rate_limit_exceeded", 1.0)
        admitted = Admitted(name, record, self._claims, claim, key)
        if record.requests_per_minute is not None:
            pace = self._claims.pace
            wait_s = usage.take(pace.allowed(record.requests_per_minute), now)
            if wait_s > 0:
                admitted.release()
                words = f"This API key may send {record.requests_per_minute:g} requests a minute."
                raise ApiError(429, words, None, "rate_limit_exceeded", wait_s)
            pace.mark(record.sha256, usage, record.requests_per_minute)
        return admitted


def _key_of(headers: Iterable[tuple[bytes, bytes]]) -> bytes | None:
    other = None
    for name, value in headers:
        if name == b"authorization" and value[:7].lower() == _BEARER:
            return value[7:].strip() or None
        if name == b"x-api-key":
            other = value.strip() or None
    return other


__all__ = ["Admitted", "KeyTable"]
