"""All keys as the hot path sees them: one look into a dictionary, rates by what is known of all workers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping

from router.keys.pace import Pace, Usage
from router.keys.record import KeyRecord, digest
from router.proxy.errors import ApiError

_BEARER = b"bearer "


class Admitted:
    """One request's permission; give it back with `release`."""

    __slots__ = ("_usage", "key", "name", "record")

    def __init__(self, name: str, record: KeyRecord, usage: Usage, key: bytes = b"") -> None:
        self.name = name
        self.key = key
        self.record = record
        self._usage = usage
        usage.inflight += 1

    def release(self) -> None:
        """The request has ended."""
        self._usage.inflight -= 1

    def check_group(self, group: str) -> None:
        """Raise ApiError 403 where the key may not use this group."""
        if not self.may_use(group):
            raise ApiError(403, f"This API key may not use the model {group!r}.", "model", "model_not_allowed")

    def may_use(self, group: str) -> bool:
        """Return whether the key may use this group."""
        return not self.record.groups or group in self.record.groups


class KeyTable:
    """Keys by their digest. With a `previous` table the counts of keys that stay go on."""

    def __init__(
        self,
        records: Mapping[str, KeyRecord],
        previous: KeyTable | None = None,
        clock: Callable[[], float] = time.time,
        pace: Pace | None = None,
    ) -> None:
        self._pace = pace if pace is not None else Pace()
        self._clock = clock
        usages: dict[str, Usage] = previous.usages() if previous is not None else {}
        self._by_digest = {r.sha256: (name, r, usages.get(r.sha256) or Usage()) for name, r in records.items()}

    def usages(self) -> dict[str, Usage]:
        """Return the counts by digest."""
        return {sha256: usage for sha256, (_, _, usage) in self._by_digest.items()}

    def __len__(self) -> int:
        return len(self._by_digest)

    def admit(self, headers: Iterable[tuple[bytes, bytes]], now: float) -> Admitted:
        """Return the permission of the key in `authorization` or `x-api-key`; `now` is the monotonic clock.

        Raises ApiError: 401 without a known key, 403 for one that is disabled or expired, 429 with Retry-After above
        a limit.
        """
        key = _key_of(headers)
        if key is None:
            raise ApiError(401, "No API key: send `Authorization: Bearer KEY`.", None, "missing_api_key")
        found = self._by_digest.get(digest(key))
        if found is None:
            raise ApiError(401, "Incorrect API key provided.", None, "invalid_api_key")
        name, record, usage = found
        if record.disabled:
            raise ApiError(403, "This API key is disabled.", None, "api_key_disabled")
        if record.expires is not None and self._clock() >= record.expires:
            raise ApiError(403, "This API key has expired.", None, "api_key_expired")
        if record.max_concurrent is not None and usage.inflight >= record.max_concurrent:
            words = f"This API key has {usage.inflight} requests in flight, as many as it may."
            raise ApiError(429, words, None, "rate_limit_exceeded", 1.0)
        if record.requests_per_minute is not None:
            wait_s = usage.take(self._pace.allowed(record.requests_per_minute), now)
            if wait_s > 0:
                words = f"This API key may send {record.requests_per_minute:g} requests a minute."
                raise ApiError(429, words, None, "rate_limit_exceeded", wait_s)
            self._pace.mark(record.sha256, usage, record.requests_per_minute)
        return Admitted(name, record, usage, key)


def _key_of(headers: Iterable[tuple[bytes, bytes]]) -> bytes | None:
    other = None
    for name, value in headers:
        if name == b"authorization" and value[:7].lower() == _BEARER:
            return value[7:].strip() or None
        if name == b"x-api-key":
            other = value.strip() or None
    return other


__all__ = ["Admitted", "KeyTable"]
