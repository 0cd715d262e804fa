"""One limit of requests at once for all workers, on a real server: exact near it, no waiting far from it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from redis import Redis

from router.keys import ledger, places, shared
from router.keys.pace import Pace
from router.keys.places import Claim, Claims
from router.keys.record import digest
from router.keys.shared import SharedLimits
from router.store.client import open_client
from router.store.valkey import PrivateValkey
from tests.conftest import until

pytestmark = pytest.mark.timing

KEY = digest(b"k")
LOG = logging.getLogger("bitgear")


class OneWorker:
    """The claims of one worker, told by its own task."""

    def __init__(self, url: str, workers: int = 2) -> None:
        self.claims = Claims(Pace(workers))
        self.claim = Claim()
        self.limits = SharedLimits(open_client(url, timeout_s=5.0), self.claims, LOG, timeout_s=5.0)

    @property
    def pace(self) -> Pace:
        return self.claims.pace

    async def enter(self, limit: int, name: str = KEY) -> bool:
        return await self.claims.enter(name, self.claim, limit, time.monotonic())

    def leave(self, times: int = 1) -> None:
        for _ in range(times):
            self.claims.leave(KEY, self.claim)

    async def fill(self, limit: int) -> int:
        """Return how many enter until the first is refused."""
        entered = 0
        while await self.enter(limit):
            entered += 1
        return entered


@asynccontextmanager
async def working(url: str, workers: int = 2) -> AsyncIterator[OneWorker]:
    worker = OneWorker(url, workers)
    await worker.limits.start()
    try:
        yield worker
    finally:
        await worker.limits.stop()


@pytest.fixture
async def workers(redis_url: str) -> AsyncIterator[Callable[[int], Awaitable[list[OneWorker]]]]:
    """A factory of so many workers that know of each other."""
    async with AsyncExitStack() as stack:

        async def start(count: int) -> list[OneWorker]:
            made = [await stack.enter_async_context(working(redis_url, count)) for _ in range(count)]
            await until(lambda: all(w.pace.shared for w in made))
            for worker in made:
                worker.limits._beat_at = -1e9
                worker.pace.wake.set()
            await until(lambda: all(w.pace.workers == count for w in made))
            return made

        yield start


@pytest.fixture
def own_valkey(tmp_path: Path) -> Iterator[PrivateValkey]:
    server = PrivateValkey(tmp_path / "state")
    server.start()
    yield server
    server.stop()


def count_scripts(url: str) -> int:
    with Redis.from_url(url) as client:
        return int(client.info("commandstats").get("cmdstat_eval", {}).get("calls", 0))


@pytest.mark.parametrize("limit", [1, 3, 16])
async def test_all_workers_together_run_as_many_as_the_limit_says(
    workers: Callable[[int], Awaitable[list[OneWorker]]], limit: int
) -> None:
    made = await workers(3)
    entered = await asyncio.gather(*(w.enter(limit) for w in made for _ in range(limit + 5)))
    assert sum(entered) == sum(w.claim.running for w in made) == limit
    made[0].leave(made[0].claim.running)
    made[1].leave(made[1].claim.running)
    made[2].leave(made[2].claim.running)
    # What one left, any other gets: none of it stays behind with a worker that does not need it.
    assert await made[2].fill(limit) == limit


async def test_the_limit_is_never_passed_while_requests_come_and_go_everywhere(
    workers: Callable[[int], Awaitable[list[OneWorker]]],
) -> None:
    made, limit, most, served = await workers(3), 5, 0, Counter[int]()

    async def client(number: int) -> None:
        nonlocal most
        for turn in range(12):
            worker = (number + turn) % 3
            if await made[worker].enter(limit):
                most = max(most, sum(w.claim.running for w in made))
                served[worker] += 1
                await asyncio.sleep(0.002 * (number % 4))
                made[worker].leave()

    await asyncio.gather(*(client(number) for number in range(15)))
    assert most == limit
    assert min(served[n] for n in range(3)) > 0
    assert all(w.claim.running == 0 for w in made)


async def test_as_many_clients_as_the_limit_are_never_refused_wherever_their_next_request_goes(
    workers: Callable[[int], Awaitable[list[OneWorker]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    # However late a busy machine lets Redis answer.
    monkeypatch.setattr(places, "WAIT_S", 30.0)
    made, limit = await workers(2), 4
    refused = 0

    async def client(number: int) -> None:
        nonlocal refused
        for turn in range(25):
            worker = made[(number + turn) % 2]
            if await worker.enter(limit):
                await asyncio.sleep(0.001)
                worker.leave()
            else:
                refused += 1

    await asyncio.gather(*(client(number) for number in range(limit)))
    assert refused == 0


async def test_far_from_the_limit_nobody_waits_for_redis(
    redis_url: str, workers: Callable[[int], Awaitable[list[OneWorker]]]
) -> None:
    one, _ = await workers(2)
    assert await one.enter(100)
    await until(lambda: one.claim._held > 30)
    entering = [one.enter(100) for _ in range(20)]
    for coroutine in entering:
        # Ends without a pause: nothing was awaited.
        with pytest.raises(StopIteration) as ended:
            coroutine.send(None)
        assert ended.value.value is True
    one.leave(21)
    # After a while its spare places have lapsed; still the next one does not wait.
    await until(lambda: time.monotonic() > one.claim._lapses and not one.pace.wake.is_set())
    with pytest.raises(StopIteration):
        one.enter(100).send(None)
    before = count_scripts(redis_url)
    for _ in range(500):
        await asyncio.sleep(0.0005)
        if await one.enter(100):
            one.leave()
    # Told of together, however many there are.
    assert count_scripts(redis_url) - before < 60


async def test_what_one_holds_to_spare_no_other_runs_on(
    workers: Callable[[int], Awaitable[list[OneWorker]]],
) -> None:
    one, other = await workers(2)
    assert await one.enter(100)
    await until(lambda: one.claim._held > 30)
    rest = await other.fill(100)
    assert rest + await one.fill(100) == 99
    assert one.claim.running + other.claim.running == 100


async def test_what_is_let_in_before_it_is_claimed_is_one_request_for_each_worker(
    workers: Callable[[int], Awaitable[list[OneWorker]]],
) -> None:
    idle, other = await workers(2)
    assert await idle.enter(12)
    idle.leave()
    # It saw plenty free, and all that it held lapses.
    await until(lambda: time.monotonic() > idle.claim._lapses > 0.0)
    assert await other.fill(12) == 12
    at_once = [idle.enter(12) for _ in range(2)]
    with pytest.raises(StopIteration):
        at_once[0].send(None)
    assert not await asyncio.wait_for(at_once[1], 60)
    assert (idle.claim.running, other.claim.running) == (1, 12)
    # With its next request the other one hears of it too: now one has to end before another enters.
    other.leave()
    assert await other.enter(12)
    await until(lambda: other.claim._rest < 0)
    other.leave()
    assert not await other.enter(12)
    assert not await idle.enter(12)
    idle.leave()
    assert await idle.enter(12)


async def test_a_worker_with_requests_in_a_row_does_not_keep_the_only_place_from_another(
    workers: Callable[[int], Awaitable[list[OneWorker]]],
) -> None:
    busy, other = await workers(2)
    done = asyncio.Event()

    async def in_a_row() -> None:
        while not done.is_set():
            if await busy.enter(1):
                await asyncio.sleep(0.01)
                busy.leave()

    task = asyncio.create_task(in_a_row())
    await until(lambda: busy.claim.running == 1)
    for _ in range(3):
        # It waits for its turn behind one request at most.
        assert await other.enter(1)
        assert busy.claim.running == 0
        other.leave()
    done.set()
    await task


async def test_one_after_the_other_over_workers_with_a_limit_of_one(
    workers: Callable[[int], Awaitable[list[OneWorker]]],
) -> None:
    one, other = await workers(2)
    assert await one.enter(1)
    began = time.monotonic()
    assert not await other.enter(1)
    assert time.monotonic() - began < 1.0
    waiting = asyncio.create_task(other.enter(1))
    await until(lambda: len(other.claim.waiting) == 1)
    one.leave()
    assert await waiting
    assert not await one.enter(1)


async def test_a_request_that_gives_up_while_it_waits_leaves_nothing_behind(
    workers: Callable[[int], Awaitable[list[OneWorker]]],
) -> None:
    one, other = await workers(2)
    assert await one.enter(1)
    waiting = [asyncio.create_task(other.enter(1))]
    await until(lambda: len(other.claim.waiting) == 1)
    waiting[0].cancel()
    await asyncio.wait(waiting)
    # Cancelled in the very moment in which it got its place.
    waiting = [asyncio.create_task(other.enter(1))]
    await until(lambda: any(not f.done() for f, _ in other.claim.waiting))
    other.claim.waiting[-1][0].set_result(True)
    other.claim.running += 1
    waiting[0].cancel()
    await asyncio.wait(waiting)
    assert waiting[0].cancelled()
    assert other.claim.running == 0
    one.leave()
    assert await one.enter(1)


async def test_no_more_wait_than_may_run(workers: Callable[[int], Awaitable[list[OneWorker]]]) -> None:
    one, other = await workers(2)
    assert await one.fill(2) == 2
    waiting = [asyncio.create_task(other.enter(2)) for _ in range(50)]
    await asyncio.sleep(0)
    assert len(other.claim.waiting) == 2
    assert not any(await asyncio.gather(*waiting))


async def test_a_dead_workers_requests_count_no_longer(
    redis_url: str, workers: Callable[[int], Awaitable[list[OneWorker]]]
) -> None:
    dead, other, third = await workers(3)
    assert await dead.fill(4) == 4
    # Its task alone: a killed worker takes nothing back.
    await dead.limits._task.stop()
    assert not await other.enter(4)
    with Redis.from_url(redis_url) as client:
        # As if it had been silent for that long.
        client.zincrby(ledger.WORKERS, -ledger.ALIVE_S, dead.limits._name)
    assert await other.fill(4) == 4
    with Redis.from_url(redis_url) as client:
        assert client.hkeys(f"{ledger.PREFIX}:{KEY}") == [other.limits._name.encode()]
    assert not await third.enter(4)


async def test_one_that_ends_takes_its_claims_along(workers: Callable[[int], Awaitable[list[OneWorker]]]) -> None:
    one, other, _ = await workers(3)
    assert await one.fill(4) == 4
    await one.limits.stop()
    assert await other.fill(4) == 4


async def test_redis_away_leaves_each_its_share_and_back_all_share_again(
    own_valkey: PrivateValkey, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(shared, "BEAT_S", 0.4)
    monkeypatch.setattr(shared, "SETTLE_S", 0.6)
    async with working(own_valkey.url) as one, working(own_valkey.url) as other:
        await until(lambda: one.pace.shared and other.pace.shared and other.pace.workers == 2)
        await until(lambda: one.pace.workers == 2)
        assert await one.fill(8) == 8
        with Redis.from_url(own_valkey.url) as client:
            client.execute_command("CLIENT", "PAUSE", "600", "ALL")
        other.limits._timeout_s = one.limits._timeout_s = 0.05
        # It waits for an answer, gets none, and is decided on here.
        assert await other.enter(8)
        assert await other.fill(8) == 3
        assert not await one.enter(8)
        one.leave(5)
        assert await one.enter(8)
        assert await one.fill(8) == 0
        one.limits._timeout_s = other.limits._timeout_s = 5.0
        await until(lambda: one.pace.shared and other.pace.shared)
        # Nobody takes a place before all have told what they run.
        assert max(one.pace.settled_at, other.pace.settled_at) > time.monotonic()
        assert not await other.enter(8)
        await until(
            lambda: one.pace.share(8, time.monotonic()) is None and other.pace.share(8, time.monotonic()) is None
        )
        assert [one.claim.running, other.claim.running] == [4, 4]
        assert not await one.enter(8)
        assert not await other.enter(8)
        one.leave(4)
        assert await other.fill(8) == 4
    said = [r.message for r in caplog.records if "key limits" in r.message]
    assert sum("Redis is away" in words and "keeps 1/2 of each key's limits" in words for words in said) == 2
    assert sum("Redis is back" in words for words in said) == 2
    assert len(said) == 4


async def test_a_redis_that_lost_everything_is_told_again_what_runs(
    redis_url: str, workers: Callable[[int], Awaitable[list[OneWorker]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared, "BEAT_S", 0.1)
    monkeypatch.setattr(shared, "SETTLE_S", 0.5)
    one, other = await workers(2)
    assert await one.fill(3) == 3
    with Redis.from_url(redis_url) as client:
        client.flushall()
        await until(lambda: bool(client.hkeys(f"{ledger.PREFIX}:{KEY}")))
    await until(lambda: all(w.pace.workers == 2 and w.pace.share(3, time.monotonic()) is None for w in (one, other)))
    assert not await other.enter(3)
    assert one.claim.running == 3


async def test_a_long_request_is_told_again_before_redis_forgets_it(
    redis_url: str, workers: Callable[[int], Awaitable[list[OneWorker]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared, "BEAT_S", 0.05)
    monkeypatch.setattr(shared, "AGAIN_S", 0.2)
    one, _ = await workers(2)
    assert await one.enter(3)
    name = f"{ledger.PREFIX}:{KEY}"
    with Redis.from_url(redis_url) as client:
        await until(lambda: bool(client.exists(name)))
        assert 0 < client.pttl(name) <= ledger._KEEP_MS
        assert places.AGAIN_S * 1000 < ledger._KEEP_MS / 2
        client.delete(name)
        await until(lambda: bool(client.exists(name)))


async def test_very_many_keys_are_told_in_bounded_reports_and_forgotten(
    redis_url: str, workers: Callable[[int], Awaitable[list[OneWorker]]]
) -> None:
    one, _ = await workers(2)
    claims = {digest(str(n).encode()): Claim() for n in range(700)}
    now = time.monotonic()
    assert all(await asyncio.gather(*(one.claims.enter(name, claim, 1, now) for name, claim in claims.items())))
    with Redis.from_url(redis_url) as client:
        assert len(client.keys(f"{ledger.PREFIX}:*")) == 700
        for name, claim in claims.items():
            one.claims.leave(name, claim)
        await until(lambda: not client.keys(f"{ledger.PREFIX}:*"))
    assert not one.claims._live
    assert not one.claims._changed


async def test_a_lone_worker_asks_nobody_until_there_is_another(
    redis_url: str, workers: Callable[[int], Awaitable[list[OneWorker]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared, "BEAT_S", 0.1)
    (one,) = await workers(1)
    for _ in range(2):
        with pytest.raises(StopIteration) as ended:
            one.enter(2).send(None)
        assert ended.value.value is True
    assert not await one.enter(2)
    async with working(redis_url, 1) as other:
        await until(lambda: one.pace.workers == other.pace.workers == 2)
        assert not await other.enter(2)
        one.leave()
        assert await other.enter(2)
        assert not await one.enter(2)


async def test_of_several_workers_the_first_to_serve_does_not_think_it_is_alone(redis_url: str) -> None:
    async with working(redis_url, 2) as one, working(redis_url, 2) as other:
        await until(lambda: one.pace.shared and other.pace.shared)
        entered = await asyncio.gather(*(w.enter(4) for w in (one, other) for _ in range(6)))
        assert sum(entered) == 4


async def test_without_any_redis_the_configured_workers_share_the_limit() -> None:
    claims, claim = Claims(Pace(4)), Claim()
    entered = [await claims.enter(KEY, claim, 8, 0.0) for _ in range(5)]
    assert entered == [True, True, False, False, False]
    assert await claims.enter(KEY, Claim(), 1, 0.0)


async def test_a_limit_that_is_lowered_holds_for_the_next_request(
    workers: Callable[[int], Awaitable[list[OneWorker]]],
) -> None:
    one, other = await workers(2)
    assert await one.fill(6) == 6
    one.leave(2)
    assert not await one.enter(4)
    assert not await other.enter(4)
    one.leave(2)
    assert await other.fill(4) == 2
