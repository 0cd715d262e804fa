"""Keys: known or not, disabled, expired, limits that refill, counts that live through a change."""

from __future__ import annotations

import asyncio

import pytest

from router.keys.pace import Pace, Usage
from router.keys.places import Claims
from router.keys.record import KeyRecord, digest, new_key
from router.keys.table import KeyTable
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


async def test_a_request_above_the_rate_takes_no_place_and_one_without_a_place_costs_no_rate() -> None:
    claims = Claims(Pace())
    table = KeyTable({"a": record("a", max_concurrent=1, requests_per_minute=12)}, claims=claims)
    running = await table.admit(bearer("a"), 0.0)
    for _ in range(20):
        assert (await refused(table, bearer("a"))).retry_after_s == 1.0
    running.release()
    # The second of two: those that were refused cost nothing.
    (await table.admit(bearer("a"), 0.0)).release()
    claims.due(10)
    claims.pace.wake.clear()
    assert (await refused(table, bearer("a"))).retry_after_s == pytest.approx(5.0)
    # Nothing was claimed or left for it, so there is nothing to tell.
    assert not claims.due(10)
    assert not claims.pace.wake.is_set()


async def test_a_request_that_gives_up_while_it_waits_for_a_place_costs_no_rate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def never(*_: object) -> bool:
        await asyncio.Event().wait()
        return True

    claims = Claims(Pace())
    table = KeyTable({"a": record("a", max_concurrent=1, requests_per_minute=1)}, claims=claims)
    with monkeypatch.context() as patch:
        patch.setattr(claims, "enter", never)
        waiting = asyncio.create_task(table.admit(bearer("a"), 0.0))
        await asyncio.sleep(0)
        assert (await refused(table, bearer("a"))).retry_after_s == pytest.approx(60.0)
        waiting.cancel()
        await asyncio.wait([waiting])
    await table.admit(bearer("a"), 0.0)


async def test_tokens_a_minute_are_a_debt_that_is_paid_back() -> None:
    table = KeyTable({"a": record("a", tokens_per_minute=600)})
    long = await table.admit(bearer("a"), 0.0)
    # Larger than what may be spent at once, and let through all the same.
    long.take_tokens(150, 0.0)
    error = await refused(table, bearer("a"), 0.0)
    assert (error.status, error.code, error.retry_after_s) == (429, "rate_limit_exceeded", pytest.approx(5.0))
    assert "600 tokens a minute" in error.message
    assert dict(error.headers())[b"x-ratelimit-remaining-tokens"] == b"0"
    # What costs none is let through.
    free = await table.admit(bearer("a"), 0.0, costs=False)
    free.settle(1e9, 0.0)
    long.settle(400, 1.0)
    assert (await refused(table, bearer("a"), 1.0)).retry_after_s == pytest.approx(29.0)
    assert (await refused(table, bearer("a"), 29.9)).retry_after_s == pytest.approx(0.1)
    short = await table.admit(bearer("a"), 30.0)
    short.take_tokens(100, 30.0)
    for _ in range(2):
        # Given back whole, once.
        short.settle(0, 31.0)
    short.take_tokens(5, 31.0)
    assert (await table.admit(bearer("a"), 31.0)).headers(31.0)[1] == (b"x-ratelimit-remaining-tokens", b"5")


async def test_a_body_that_comes_when_others_have_run_into_debt_costs_no_request() -> None:
    table = KeyTable({"a": record("a", tokens_per_minute=600, requests_per_minute=6)})
    slow = await table.admit(bearer("a"), 0.0)
    slow._allowance.spend_tokens(130, Pace(), 0.0)
    with pytest.raises(ApiError) as caught:
        slow.take_tokens(1, 0.0)
    assert caught.value.retry_after_s == pytest.approx(3.0)
    assert slow.taken is None
    slow.settle(50, 0.0)
    assert await table.admit(bearer("a"), 3.0)


async def test_a_debt_lives_through_a_change_of_the_record_and_a_higher_limit_pays_it_sooner() -> None:
    table = KeyTable({"a": record("a", tokens_per_minute=60)})
    (await table.admit(bearer("a"), 0.0)).take_tokens(70, 0.0)
    assert (await refused(table, bearer("a"), 0.0)).retry_after_s == pytest.approx(60.0)
    later = KeyTable({"b": record("a", tokens_per_minute=600)}, table)
    assert (await refused(later, bearer("a"), 0.0)).retry_after_s == pytest.approx(6.0)
    free = KeyTable({"b": record("a")}, later)
    admitted = await free.admit(bearer("a"), 0.0)
    admitted.take_tokens(10, 0.0)
    assert (admitted.taken, admitted.headers(0.0), admitted.limited) == (None, [], False)


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
