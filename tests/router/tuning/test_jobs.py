"""Jobs, wishes and the lease in a real Valkey."""

from __future__ import annotations

import asyncio

import pytest
from redis.asyncio import Redis

from router.control.store import ControlStore
from router.tuning.jobs import WISH_S, WISHES, Jobs, Lease
from router.tuning.service import TuningError, TuningService


async def test_one_worker_holds_the_lease_and_another_follows_a_crash(redis: Redis) -> None:
    first, second = Lease(redis, ttl_s=0.3), Lease(redis, ttl_s=0.3)
    assert await first.take()
    assert await first.take()
    assert not await second.take()
    # The first renews no more, as after a crash.
    async with asyncio.timeout(60):
        while not await second.take():
            await asyncio.sleep(0.02)
    assert not await first.take()
    await first.release()
    assert await second.take()
    await second.release()
    assert await first.take()


async def test_jobs_are_listed_newest_first_and_once(redis: Redis) -> None:
    jobs = Jobs(redis)
    for i, group in enumerate("aba"):
        await jobs.save({"id": f"j{i}", "group": group, "at": i, "status": "kept", "report": {"much": [1]}})
    await jobs.save({"id": "j1", "group": "b", "at": 1, "status": "canary"})
    assert [j["id"] for j in await jobs.recent()] == ["j2", "j1", "j0"]
    assert [j["id"] for j in await jobs.recent("a", 1)] == ["j2"]
    assert (await jobs.load("j1") or {})["status"] == "canary"
    assert "report" not in (await jobs.recent())[0]
    assert await jobs.load("none") is None
    assert await redis.ttl("bitgear:tuning:job:j0") > 0


async def test_wishes_are_taken_once_and_in_turn(redis: Redis) -> None:
    jobs = Jobs(redis)
    assert not await jobs.wished(["g", "h"])
    assert await jobs.wish("g", "somebody", True) == 1
    assert await jobs.wish("g", "somebody", False, "abc") == 2
    assert await jobs.wished(["g", "h"])
    assert not await jobs.wished(["h"])
    assert 0 < await redis.ttl("bitgear:tuning:wishes:g") <= WISH_S
    first = await jobs.take_wish("g")
    assert first == {"by": "somebody", "dry_run": True, "job": "", "kind": "thresholds"}
    await jobs.give_back("g", first)
    assert await jobs.take_wish("g") == first
    assert await jobs.take_wish("g") == {"by": "somebody", "dry_run": False, "job": "abc", "kind": "thresholds"}
    assert await jobs.take_wish("g") is None
    await jobs.give_back("g", first)
    assert 0 < await redis.ttl("bitgear:tuning:wishes:g") <= WISH_S


async def test_one_wish_too_many_is_refused_and_loses_none(redis: Redis) -> None:
    service = TuningService(Jobs(redis), ControlStore(redis), {"g", "h"})
    for i in range(WISHES):
        assert (await service.start("g", f"user{i}"))["waiting"] == i + 1
    with pytest.raises(TuningError, match="wait already") as refused:
        await service.start("g", "late")
    assert refused.value.status == 409
    assert (await service.start("h", "other"))["waiting"] == 1
    taken = [(await Jobs(redis).take_wish("g") or {})["by"] for _ in range(WISHES)]
    assert taken == [f"user{i}" for i in range(WISHES)]
    assert await Jobs(redis).take_wish("g") is None
