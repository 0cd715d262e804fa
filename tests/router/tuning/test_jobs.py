"""Jobs, wishes and the lease in a real Valkey."""

from __future__ import annotations

import asyncio

from redis.asyncio import Redis

from router.tuning.jobs import Jobs, Lease


async def test_one_worker_holds_the_lease_and_another_follows_a_crash(redis: Redis) -> None:
    first, second = Lease(redis, ttl_s=0.3), Lease(redis, ttl_s=0.3)
    assert await first.take()
    assert await first.take()
    assert not await second.take()
    # The first renews no more, as after a crash.
    async with asyncio.timeout(10):
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


async def test_a_wish_is_taken_once(redis: Redis) -> None:
    jobs = Jobs(redis)
    await jobs.wish("g", "somebody", True)
    assert await jobs.take_wish("g") == {"by": "somebody", "dry_run": True}
    assert await jobs.take_wish("g") is None
