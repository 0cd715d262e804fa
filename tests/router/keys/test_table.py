"""Keys: known or not, disabled, expired, limits that refill, counts that live through a change."""

from __future__ import annotations

import pytest

from router.keys.record import KeyRecord, digest, new_key
from router.keys.table import KeyTable, Usage
from router.proxy.errors import ApiError


def bearer(key: str) -> list[tuple[bytes, bytes]]:
    return [(b"authorization", b"Bearer " + key.encode())]


def record(key: str, **more: object) -> KeyRecord:
    return KeyRecord.model_validate({"sha256": digest(key.encode()), **more})


async def refused(table: KeyTable, headers: list[tuple[bytes, bytes]], now: float = 0.0) -> ApiError:
    with pytest.raises(ApiError) as caught:
        await table.admit(headers, now)
    return caught.value


async def test_only_known_keys() -> None:
    table = KeyTable({"a": record("k")})
    assert (await table.admit(bearer("k"), 0.0)).name == "a"
    assert (await table.admit([(b"x-api-key", b"k")], 0.0)).name == "a"
    for headers in ([], bearer(""), bearer("other"), [(b"authorization", b"Basic k")], bearer(digest(b"k"))):
        assert (await refused(table, headers)).status == 401
    assert (await refused(KeyTable({}), bearer("k"))).status == 401


async def test_disabled_and_expired_ones_are_403() -> None:
    table = KeyTable({"a": record("a", disabled=True), "b": record("b", expires=100.0)}, clock=lambda: 100.0)
    assert ((await refused(table, bearer("a"))).status, (await refused(table, bearer("a"))).code) == (
        403,
        "api_key_disabled",
    )
    assert (await refused(table, bearer("b"))).code == "api_key_expired"
    assert await KeyTable({"b": record("b", expires=100.0)}, clock=lambda: 99.0).admit(bearer("b"), 0.0)


async def test_requests_a_minute_refill() -> None:
    table = KeyTable({"a": record("a", requests_per_minute=60)})
    for _ in range(10):
        (await table.admit(bearer("a"), 5.0)).release()
    error = await refused(table, bearer("a"), 5.0)
    assert (error.status, error.code, error.retry_after_s) == (429, "rate_limit_exceeded", pytest.approx(1.0))
    assert (await refused(table, bearer("a"), 5.5)).retry_after_s == pytest.approx(0.5)
    await table.admit(bearer("a"), 6.0)
    assert (await refused(table, bearer("a"), 6.0)).status == 429
    # A slow key gets its one request too.
    slow = KeyTable({"a": record("a", requests_per_minute=1)})
    await slow.admit(bearer("a"), 0.0)
    assert (await refused(slow, bearer("a"), 0.0)).retry_after_s == pytest.approx(60.0)


async def test_requests_at_once_live_through_a_change_of_the_record() -> None:
    table = KeyTable({"a": record("a", max_concurrent=2)})
    one, _ = await table.admit(bearer("a"), 0.0), await table.admit(bearer("a"), 0.0)
    assert (await refused(table, bearer("a"))).status == 429
    later = KeyTable({"renamed": record("a", max_concurrent=2)}, table)
    assert (await refused(later, bearer("a"))).status == 429
    one.release()
    assert (await later.admit(bearer("a"), 0.0)).name == "renamed"


async def test_a_limit_that_comes_counts_what_runs_already_and_one_that_goes_is_forgotten() -> None:
    free = KeyTable({"a": record("a")})
    running = [await free.admit(bearer("a"), 0.0) for _ in range(3)]
    limited = KeyTable({"a": record("a", max_concurrent=3)}, free)
    assert (await refused(limited, bearer("a"))).retry_after_s == 1.0
    running[0].release()
    await limited.admit(bearer("a"), 0.0)
    assert await KeyTable({"a": record("a")}, limited).admit(bearer("a"), 0.0)


async def test_a_request_above_the_rate_keeps_no_place() -> None:
    table = KeyTable({"a": record("a", max_concurrent=2, requests_per_minute=1)})
    (await table.admit(bearer("a"), 0.0)).release()
    for _ in range(5):
        assert (await refused(table, bearer("a"))).retry_after_s == pytest.approx(60.0)


async def test_groups() -> None:
    admitted = await KeyTable({"a": record("a", groups=["g"])}).admit(bearer("a"), 0.0)
    admitted.check_group("g")
    with pytest.raises(ApiError) as caught:
        admitted.check_group("h")
    assert (caught.value.status, caught.value.param) == (403, "model")


def test_a_new_key_is_long_and_its_record_does_not_hold_it() -> None:
    key, sha256 = new_key()
    assert len(key) > 40
    assert digest(key.encode()) == sha256
    assert new_key()[0] != key


def test_nobody_is_told_to_wait_longer_than_a_day() -> None:
    usage = Usage()
    assert usage.take(1e-300, 0.0) == 0
    assert usage.take(1e-300, 1.0) == 86_400
