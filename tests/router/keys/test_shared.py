"""One limit for all workers: what each lets through is told to the others, and none waits for it."""

from __future__ import annotations

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


@pytest.fixture
def valkey(tmp_path: Path) -> Iterator[PrivateValkey]:
    server = PrivateValkey(tmp_path / "state")
    server.start()
    yield server
    server.stop()


class OneWorker:
    """The keys of one worker; its clock stands still, so that nothing refills in it by itself."""

    def __init__(self, url: str, per_minute: float = 60.0, workers: int = 1) -> None:
        self.pace = Pace(workers)
        records = {"a": KeyRecord(sha256=digest(b"k"), requests_per_minute=per_minute)}
        claims = Claims(self.pace, clock=lambda: 100.0)
        self.table = KeyTable(records, claims=claims)
        self.rates = SharedLimits(open_client(url, timeout_s=5.0), claims, LOG, timeout_s=5.0, clock=lambda: 100.0)

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


async def test_without_any_redis_the_configured_workers_share_the_limit() -> None:
    pace = Pace(4)
    rates = SharedLimits(None, Claims(pace), LOG)
    rates.start()
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
