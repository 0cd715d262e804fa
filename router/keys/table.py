"""All keys as the hot path sees them: one look into a dictionary, limits by what is known of all workers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping

from router.keys.allowance import Allowance
from router.keys.pace import Pace
from router.keys.places import Claims
from router.keys.record import KeyRecord, digest
from router.proxy.errors import ApiError

_BEARER = b"bearer "


class Admitted:
    """One request's permission; give it back with `release`."""

    __slots__ = ("_allowance", "_claims", "key", "record", "taken")

    def __init__(self, allowance: Allowance, claims: Claims, key: bytes = b"") -> None:
        self.key = key
        self.record = allowance.record
        self.taken: float | None = None
        """Tokens that were taken for it and are yet to be settled; None: none are counted."""
        self._allowance = allowance
        self._claims = claims

    @property
    def name(self) -> str:
        """The key's name."""
        return self._allowance.name

    @property
    def limited(self) -> bool:
        """Whether there is a limit that `headers` tells."""
        return self._allowance.limited

    def take_tokens(self, expected: float, now: float) -> None:
        """Take what it will cost, as far as can be told. Raises ApiError 429 where others have run into debt by now."""
        if self.record.tokens_per_minute is None:
            return
        wait_s = self._allowance.debt_s(self._claims.pace, now)
        if wait_s > 0:
            self._allowance.give_back_request(self._claims.pace)
            raise _too_many_tokens(self.record, wait_s)
        self._allowance.spend_tokens(expected, self._claims.pace, now)
        self.taken = expected

    def settle(self, tokens: float, now: float) -> None:
        """It cost so many tokens: the difference to what was taken is taken or given back, once."""
        if self.taken is not None:
            self._allowance.spend_tokens(tokens - self.taken, self._claims.pace, now)
            self.taken = None

    def headers(self, now: float) -> list[tuple[bytes, bytes]]:
        """Return the headers that tell the key's limits, as this worker knows them."""
        return self._allowance.headers(self._claims.pace, now)

    def release(self) -> None:
        """The request has ended."""
        self._claims.leave(self.record.sha256, self._allowance.claim)

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
        claims: Claims | None = None,
    ) -> None:
        self._claims = claims if claims is not None else Claims(Pace())
        self._clock = clock
        self._by_digest: dict[str, Allowance] = {}
        for name, record in records.items():
            last = previous._by_digest.get(record.sha256) if previous is not None else None
            self._by_digest[record.sha256] = Allowance(name, record, last)

    def __len__(self) -> int:
        return len(self._by_digest)

    async def admit(self, headers: Iterable[tuple[bytes, bytes]], now: float, *, costs: bool = True) -> Admitted:
        """Return the permission of the key in `authorization` or `x-api-key`; `now` is the monotonic clock.

        `costs`: whether the request may cost tokens. Raises ApiError: 401 without a known key, 403 for one that is
        disabled or expired, 429 with Retry-After above a limit; what one limit refuses costs the others nothing. Waits
        only for a key with a limit of requests at once, where this worker holds no place of it.
        """
        key = _key_of(headers)
        if key is None:
            raise ApiError(401, "No API key: send `Authorization: Bearer KEY`.", None, "missing_api_key")
        found = self._by_digest.get(digest(key))
        if found is None:
            raise ApiError(401, "Incorrect API key provided.", None, "invalid_api_key")
        record = found.record
        if record.disabled:
            raise ApiError(403, "This API key is disabled.", None, "api_key_disabled")
        if record.expires is not None and self._clock() >= record.expires:
            raise ApiError(403, "This API key has expired.", None, "api_key_expired")
        self._within_rates(found, now, costs)
        # Last, as a place may have to be waited for: whoever gets one needs nothing more.
        if record.max_concurrent is None:
            self._claims.count(found.claim)
        else:
            await self._enter(found, record.max_concurrent, now)
        return Admitted(found, self._claims, key)

    def _within_rates(self, found: Allowance, now: float, costs: bool) -> None:
        record, pace = found.record, self._claims.pace
        if costs and record.tokens_per_minute is not None and (wait_s := found.debt_s(pace, now)) > 0:
            raise _Limited(_too_many_tokens(record, wait_s), found.headers(pace, now))
        if record.requests_per_minute is not None and (wait_s := found.take_request(pace, now)) > 0:
            words = f"This API key may send {record.requests_per_minute:.15g} requests a minute."
            raise _Limited(_too_many(words, wait_s), found.headers(pace, now))

    async def _enter(self, found: Allowance, limit: int, now: float) -> None:
        pace, entered = self._claims.pace, False
        try:
            entered = await self._claims.enter(found.record.sha256, found.claim, limit, now)
        finally:
            if not entered:
                found.give_back_request(pace)
        if not entered:
            words = f"This API key has as many requests in flight as it may: {limit}."
            raise _Limited(_too_many(words, 1.0), found.headers(pace, now))


class _Limited(ApiError):  # noqa: N818 - named after what it says
    """A 429 before there is a permission: its headers tell the limits themselves."""

    def __init__(self, error: ApiError, limits: list[tuple[bytes, bytes]]) -> None:
        super().__init__(error.status, error.message, error.param, error.code, error.retry_after_s)
        self._limits = limits

    def headers(self) -> list[tuple[bytes, bytes]]:
        """Return Retry-After and the limits."""
        return [*super().headers(), *self._limits]


def _too_many(words: str, wait_s: float) -> ApiError:
    return ApiError(429, words, None, "rate_limit_exceeded", wait_s)


def _too_many_tokens(record: KeyRecord, wait_s: float) -> ApiError:
    return _too_many(f"This API key may use {record.tokens_per_minute} tokens a minute, and has used more.", wait_s)


def _key_of(headers: Iterable[tuple[bytes, bytes]]) -> bytes | None:
    other = None
    for name, value in headers:
        if name == b"authorization" and value[:7].lower() == _BEARER:
            return value[7:].strip() or None
        if name == b"x-api-key":
            other = value.strip() or None
    return other


__all__ = ["Admitted", "KeyTable"]
