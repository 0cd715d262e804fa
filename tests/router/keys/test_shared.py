"""One limit for all workers: what each lets through is told to the others, and none waits for it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from redis import Redis

from router.keys.pace import Pace, Usage
from router.keys.places import Claims
from router.keys.record import KeyRecord, digest
from router.keys.shared import SharedLimits
from router.keys.table import KeyTable
from router.proxy.errors import ApiError
from router.store.client import open_client
from router.store.valkey import PrivateValkey

HEADERS = [(b"authorization", b"Bearer k")]
LOG = logging.getLogger("bitgear")
RECORD = {"sha256": digest(b"k")}


@pytest.fixture
def valkey(tmp_path: Path) -> Iterator[PrivateValkey]:
    server = PrivateValkey(tmp_path / "state")
    server.start()
    yield server
    server.stop()


class OneWorker:
    """The keys of one worker; its clock stands still, so that nothing refills in it by itself."""

    def __init__(self, url: str, per_minute: float = 60.0, workers: int = 1, **limits: int) -> None:
        self.pace = Pace(workers)
        records = {"a": KeyRecord.model_validate({**RECORD, "requests_per_minute": per_minute, **limits})}
        claims = Claims(self.pace, clock=lambda: 100.0)
        self.table = KeyTable(records, claims=claims)
        self.now = 100.0
        client = open_client(url, timeout_s=5.0)
        self.rates = SharedLimits(client, claims, LOG, timeout_s=5.0, clock=lambda: self.now)

    async def ask(self, times: int) -> int:
        """Return how many of so many requests are let through."""
        passed = 0
        for _ in range(times):
            try:
                (await self.table.admit(HEADERS, 100.0)).release()
                passed += 1
            except ApiError as error:
                if error.code != "rate_limit_exceeded":
                    raise
        return passed


@pytest.fixture
async def two(valkey: PrivateValkey) -> AsyncIterator[tuple[OneWorker, OneWorker]]:
    # A limit that refills by next to nothing while the test runs: a burst of one.
    both = OneWorker(valkey.url, 0.001), OneWorker(valkey.url, 0.001)
    for worker in both:
        await worker.rates.sync()
    yield both
    for worker in both:
        await worker.rates.stop()


async def test_what_one_let_through_the_other_does_not(two: tuple[OneWorker, OneWorker]) -> None:
    one, other = two
    assert await one.ask(3) == 1
    await one.rates.sync()
    # It has not heard of it yet; then it has, and owes one.
    assert await other.ask(1) == 1
    await other.rates.sync()
    assert await other.ask(5) == 0
    with pytest.raises(ApiError) as refused:
        await other.table.admit(HEADERS, 100.0)
    assert refused.value.retry_after_s == 86_400.0
    assert await one.ask(5) == 0


async def test_a_new_worker_hears_before_its_second_request(
    valkey: PrivateValkey, two: tuple[OneWorker, OneWorker]
) -> None:
    assert await two[0].ask(1) == 1
    await two[0].rates.sync()
    late = OneWorker(valkey.url, 0.001)
    await late.rates.sync()
    assert await late.ask(1) == 1
    await late.rates.sync()
    assert await late.ask(9) == 0
    await late.rates.stop()


async def test_requests_while_a_report_is_on_its_way_are_told_with_the_next(valkey: PrivateValkey) -> None:
    usage = Usage()
    assert [usage.take(60, 0.0) for _ in range(4)] == [0.0] * 4
    # Three were told; the fourth is not in what Redis answered.
    usage.heard(7.0, 3, 0.0)
    assert usage.spent == 1
    assert [usage.take(60, 0.0) for _ in range(6)] == [0.0] * 6
    assert usage.take(60, 0.0) == pytest.approx(1.0)


@pytest.mark.timing
async def test_without_redis_each_keeps_its_share_and_debts_are_paid_later(valkey: PrivateValkey) -> None:
    one, other = OneWorker(valkey.url, 120.0), OneWorker(valkey.url, 120.0)
    for worker in (one, other, one):
        worker.rates._beat_at = -1e9
        await worker.rates.sync()
    assert one.pace.workers == 2
    assert one.pace.allowed(120.0) == 120.0
    with Redis.from_url(valkey.url) as client:
        client.execute_command("CLIENT", "PAUSE", "300", "ALL")
    one.rates._timeout_s = 0.05
    assert await one.ask(1) == 1
    await one.rates.sync()
    assert not one.pace.shared
    assert one.pace.allowed(120.0) == 60.0
    # Half the rate has half the burst: ten at most.
    assert await one.ask(30) == 10
    one.rates._timeout_s = 5.0
    await one.rates.sync()
    assert one.pace.shared
    with Redis.from_url(valkey.url) as client:
        assert float(client.hget(f"bitgear:rate:{digest(b'k')}", "tokens") or 99) < 12
    for worker in (one, other):
        await worker.rates.stop()


@pytest.fixture
async def tokens(valkey: PrivateValkey) -> AsyncIterator[tuple[OneWorker, OneWorker]]:
    # Ten tokens at once; nothing comes back while the test runs but 1/s in Redis.
    both = (
        OneWorker(valkey.url, 6000.0, tokens_per_minute=60),
        OneWorker(valkey.url, 6000.0, tokens_per_minute=60),
    )
    for worker in both:
        await worker.rates.sync()
    yield both
    for worker in both:
        await worker.rates.stop()


async def test_a_debt_of_tokens_is_everybodys_and_so_is_what_is_given_back(tokens: tuple[OneWorker, OneWorker]) -> None:
    one, other = tokens
    long = await one.table.admit(HEADERS, 100.0)
    long.take_tokens(5_000, 100.0)
    await one.rates.sync()
    assert await other.ask(1) == 1
    (await other.table.admit(HEADERS, 100.0)).take_tokens(1, 100.0)
    await other.rates.sync()
    with pytest.raises(ApiError) as refused:
        await other.table.admit(HEADERS, 100.0)
    assert refused.value.retry_after_s == pytest.approx(4_990, abs=60)
    long.settle(200, 100.0)
    await one.rates.sync()
    # The other one had nothing to tell, but it refused somebody: so it hears.
    await other.rates.sync()
    with pytest.raises(ApiError) as refused:
        await other.table.admit(HEADERS, 100.0)
    assert refused.value.retry_after_s == pytest.approx(190, abs=60)
    long._allowance.spend_tokens(-200, one.pace, 100.0)
    await one.rates.sync()
    await other.rates.sync()
    assert await other.ask(1) == 1
    assert await one.ask(1) == 1


async def test_what_is_given_back_makes_no_bucket_larger(
    valkey: PrivateValkey, tokens: tuple[OneWorker, OneWorker]
) -> None:
    one, _ = tokens
    admitted = await one.table.admit(HEADERS, 100.0)
    admitted.take_tokens(8, 100.0)
    # Told only after all: minus 500 of a bucket that is full.
    admitted.settle(-500, 100.0)
    await one.rates.sync()
    with Redis.from_url(valkey.url) as client:
        assert float(client.hget(f"bitgear:rate:tokens:{digest(b'k')}", "tokens") or 99) == 10.0
    assert (await one.table.admit(HEADERS, 100.0)).headers(100.0)[4] == (b"x-ratelimit-remaining-tokens", b"10")


async def test_one_that_ends_tells_what_its_last_answers_cost(
    valkey: PrivateValkey, tokens: tuple[OneWorker, OneWorker]
) -> None:
    one, _ = tokens
    admitted = await one.table.admit(HEADERS, 100.0)
    admitted.take_tokens(5, 100.0)
    await one.rates.sync()
    admitted.settle(7_000, 100.0)
    await one.rates.stop()
    name = f"bitgear:rate:tokens:{digest(b'k')}"
    with Redis.from_url(valkey.url) as client:
        assert float(client.hget(name, "tokens") or 99) == pytest.approx(-6_990, abs=60)
        # A debt is kept until it is paid back.
        assert client.pttl(name) == pytest.approx(7_001_000, abs=60_000)


@pytest.mark.timing
async def test_what_came_back_while_redis_was_away_is_not_owed_when_it_is_back(
    valkey: PrivateValkey, tokens: tuple[OneWorker, OneWorker]
) -> None:
    one, _ = tokens
    with Redis.from_url(valkey.url) as client:
        client.execute_command("CLIENT", "PAUSE", "300", "ALL")
    one.rates._timeout_s = 0.05
    (await one.table.admit(HEADERS, 100.0)).take_tokens(5_000, 100.0)
    await one.rates.sync()
    one.now += 7_200.0
    await one.rates.sync()
    (await one.table.admit(HEADERS, one.now)).take_tokens(25, one.now)
    one.rates._timeout_s = 5.0
    await one.rates.sync()
    assert one.pace.shared
    with Redis.from_url(valkey.url) as client:
        # Of the time before no more than a burst: 10 less 25 and 10.
        level = float(client.hget(f"bitgear:rate:tokens:{digest(b'k')}", "tokens") or 99)
    assert -25.0 <= level <= -15.0


async def test_a_worker_knows_of_the_others_before_its_first_request(valkey: PrivateValkey) -> None:
    worker = OneWorker(valkey.url, workers=2)
    await worker.rates.start()
    assert worker.pace.shared
    await worker.rates.stop()


@pytest.mark.timing
async def test_a_report_that_is_cut_short_is_told_again(
    valkey: PrivateValkey, two: tuple[OneWorker, OneWorker]
) -> None:
    one, _ = two
    assert await one.ask(1) == 1
    with Redis.from_url(valkey.url) as client:
        client.execute_command("CLIENT", "PAUSE", "300", "ALL")
    report = asyncio.create_task(one.rates.sync())
    await asyncio.sleep(0.01)
    report.cancel()
    await asyncio.wait([report])
    await one.rates.stop()
    with Redis.from_url(valkey.url) as client:
        assert float(client.hget(f"bitgear:rate:{digest(b'k')}", "tokens") or 99) <= 0.0


async def test_the_smallest_of_limits_and_the_largest_of_debts_are_no_trouble(
    valkey: PrivateValkey, caplog: pytest.LogCaptureFixture
) -> None:
    worker = OneWorker(valkey.url, 1e-300, tokens_per_minute=1)
    await worker.rates.sync()
    (await worker.table.admit(HEADERS, 100.0)).take_tokens(10**18, 100.0)
    await worker.rates.sync()
    assert worker.pace.shared
    assert await worker.ask(2) == 0
    with Redis.from_url(valkey.url) as client:
        for name in ("", "tokens:"):
            assert 0 < client.pttl(f"bitgear:rate:{name}{digest(b'k')}") <= 366 * 86_400_000
    assert not caplog.records
    await worker.rates.stop()


async def test_without_any_redis_the_configured_workers_share_the_limit() -> None:
    pace = Pace(4)
    rates = SharedLimits(None, Claims(pace), LOG)
    await rates.start()
    await rates.sync()
    assert pace.allowed(60.0) == 15.0
    await rates.stop()


def test_a_report_is_bounded() -> None:
    pace = Pace()
    for number in range(300):
        pace.mark(str(number), Usage(), 60.0)
    pace.wake.clear()
    assert len(pace.take(256)) == 256
    assert pace.wake.is_set()
    assert len(pace.take(256)) == 44
    assert pace.take(256) == {}


async def test_a_lost_redis_is_logged_once_each_way(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    server = PrivateValkey(tmp_path / "state")
    server.start()
    worker = OneWorker(server.url)
    await worker.rates.sync()
    server.stop()
    for _ in range(3):
        await worker.ask(1)
        await worker.rates.sync()
    assert [r.message for r in caplog.records if "key limits" in r.message] == [
        next(r.message for r in caplog.records if "Redis is away" in r.message)
    ]
    await worker.rates.stop()
