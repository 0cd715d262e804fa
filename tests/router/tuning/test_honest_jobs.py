"""What jobs say is what the control document does, whoever changes it meanwhile, whatever dies, and whatever the clock does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from redis.asyncio import Redis

from benchmarks.tuning.lived import SETTINGS, Lived
from benchmarks.tuning.world import World
from router.control.document import Canary, GroupTuning
from router.tuning.jobs import begun
from router.tuning.records import Record
from router.tuning.service import TuningError, TuningService, changed

START = {"int8": 0.2, "int4": 0.2}
RICH = World(shadow=0.8, explore=0.1)
QUICK = SETTINGS.model_copy(update={"interval_s": 1e9, "max_records": 4000})


async def put(lived: Lived, tuning: GroupTuning) -> None:
    document = await lived.store.current()
    await lived.store.publish(changed(document, "g", tuning, by="ann", reason="by hand"), expected=document.version)


async def proposed(lived: Lived, **more: Any) -> str:
    """Keep a proposal for the group as it is now; return its id."""
    document = await lived.store.current()
    tuning = document.groups.get("g", GroupTuning())
    job = begun("g", tuning, at=lived.now, by="tuning", version=document.version, status="proposed")
    job.update(canary_share=0.2, thresholds={"int8": 0.3, "int4": 0.25}, bounds={}, report={}, **more)
    await lived.jobs.save(job)
    return str(job["id"])


async def on_trial(lived: Lived) -> str:
    job = await proposed(lived)
    await put(lived, GroupTuning(canary=Canary(share=0.2, thresholds={"int8": 0.3}, since=lived.now, job=job)))
    await lived.jobs.save({**(await lived.jobs.load(job) or {}), "status": "canary"})
    await lived.live(500, 500)
    assert (await status(lived, job), (await lived.tuning()).canary is not None) == ("canary", True)
    return job


async def status(lived: Lived, job: str) -> str:
    return str((await lived.jobs.load(job) or {})["status"])


async def test_thresholds_proposed_for_one_classifiers_risks_are_not_approved_for_anothers(redis: Redis) -> None:
    lived = Lived(RICH, redis, settings=QUICK, start=START)
    service = TuningService(lived.jobs, lived.store, ["g"])
    job = await proposed(lived)
    # Thresholds stay as they were: there are none over the configuration's.
    await put(lived, GroupTuning(classifier="a" * 64))
    with pytest.raises(TuningError, match="changed since"):
        await service.approve(job, "bob")
    assert (await lived.tuning()).canary is None
    assert (await service.approve(await proposed(lived), "bob"))["status"] == "canary"


async def test_a_proposal_towards_full_precision_holds_at_once_and_ends_a_trial(redis: Redis) -> None:
    lived = Lived(RICH, redis, settings=QUICK, start=START)
    service = TuningService(lived.jobs, lived.store, ["g"])
    await put(lived, GroupTuning(canary=Canary(share=0.2, thresholds={"int8": 0.3}, since=lived.now, job="other")))
    with pytest.raises(TuningError, match="canary already"):
        await service.approve(await proposed(lived), "bob")
    for report in ({"alarms": [{"reason": "int4 fell", "labels": 9}]}, {"action": "tighten"}):
        job = await proposed(lived)
        kept = await lived.jobs.load(job) or {}
        await lived.jobs.save({**kept, "report": report, "thresholds": {"int4": 0.0}, "bounds": {"int4": [0.0, 0.0]}})
        assert (await service.approve(job, "bob"))["status"] == await status(lived, job) == "published"
        tuning = await lived.tuning()
        assert (tuning.thresholds, tuning.bounds, tuning.canary) == ({"int4": 0.0}, {"int4": (0.0, 0.0)}, None)
    stale = await proposed(lived)
    await lived.jobs.save({**(await lived.jobs.load(stale) or {}), "report": {"action": "tighten"}})
    await put(lived, GroupTuning(thresholds={"int4": 0.1}))
    with pytest.raises(TuningError, match="changed since"):
        await service.approve(stale, "bob")


async def test_a_canary_whose_approval_was_not_written_down_can_be_ended(redis: Redis) -> None:
    lived = Lived(RICH, redis, settings=QUICK, start=START)
    service = TuningService(lived.jobs, lived.store, ["g"])
    job = await proposed(lived)
    # Whoever approved it died between publishing and keeping the job.
    await put(lived, GroupTuning(canary=Canary(share=0.2, thresholds={"int8": 0.3}, since=lived.now, job=job)))
    assert (await service.reject(job, "bob"))["status"] == "rejected"
    assert (await lived.tuning()).canary is None


async def test_a_rejection_during_a_look_holds(redis: Redis) -> None:
    lived = Lived(RICH.but(shadow=0.02), redis, settings=QUICK, start=START)
    service = TuningService(lived.jobs, lived.store, ["g"])
    job = await on_trial(lived)
    read, reads = lived.tuner._read, []

    async def slow(group: str, since: float, limit: int) -> Sequence[Record]:
        found = await read(group, since, limit)
        reads.append(since)
        if len(reads) == 2:
            # The first one was the guard's.
            await service.reject(job, "bob")
        return found

    lived.tuner._read = lived.tuner._trials._read = slow
    lived.now += 60.0
    await lived.tuner.tick()
    assert len(reads) == 2
    assert (await lived.tuning()).canary is None
    assert await status(lived, job) == "rejected"


async def test_a_trial_that_another_change_ended_is_no_canary_any_more(redis: Redis) -> None:
    lived = Lived(RICH.but(shadow=0.02), redis, settings=QUICK, start=START)
    job = await on_trial(lived)
    await put(lived, GroupTuning(thresholds={"int8": 0.1}))
    lived.now += 60.0
    await lived.tuner.tick()
    done = await lived.jobs.load(job) or {}
    assert (done["status"], done["outcome"]) == ("rolled_back", "another change ended the trial: version 2 has none")
    # Nothing else happened by it.
    assert (await lived.tuning()).thresholds == {"int8": 0.1}


async def test_a_clock_that_goes_back_stops_neither_guard_nor_jobs(redis: Redis) -> None:
    lived = Lived(RICH, redis, settings=QUICK.model_copy(update={"interval_s": 3600}), start=START)
    ahead = lived.now + 365 * 86_400
    times = ("job_at", "changed_at", "data_since", "guard_since", "speed_at", "retrained_at")
    await lived.jobs.set_state("g", dict.fromkeys(times, ahead))
    lived.tuner._rests["g"] = ahead
    await lived.live(1000, 1000)
    # A year ahead, a job began; an hour after the clock was set right, there is one again.
    lived.now += 3700.0
    await lived.live(1000, 1000)
    (job, *_) = await lived.jobs.recent(limit=1)
    assert job["at"] < ahead
    lived.world = RICH.but(loss={"int8": 0.03, "int4": 0.9})
    served = lived.served
    while (await lived.thresholds())["int4"] > 0.0:
        assert lived.served - served < 2000
        await lived.live(500, 500)


async def test_a_canary_that_began_in_the_future_ends(redis: Redis) -> None:
    lived = Lived(RICH, redis, settings=QUICK, start=START)
    ahead = Canary(share=0.2, thresholds={"int8": 0.3}, since=lived.now + 365 * 86_400, job="x")
    await put(lived, GroupTuning(canary=ahead))
    await lived.live(500, 500)
    assert (await lived.tuning()).canary is None


async def test_records_of_which_nothing_can_be_computed_stop_no_other_groups_tuning(
    redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    lived = Lived(RICH, redis, settings=QUICK.model_copy(update={"mode": "off"}), start=START)
    lived.tuner.groups = dict.fromkeys(("f", "g"), lived.group)
    read = lived.tuner._read

    async def odd(group: str, since: float, limit: int) -> Sequence[Record]:
        if group == "f":
            raise ZeroDivisionError("of these records nothing can be computed")
        return await read(group, since, limit)

    lived.tuner._read = odd
    await lived.jobs.wish("f", "ada", False, "fjob")
    await lived.jobs.wish("g", "ada", True, "gjob")
    await lived.tuner.tick()
    assert await status(lived, "gjob") == "refused"
    assert await status(lived, "fjob") == "failed"
    assert (await lived.jobs.load("fjob") or {})["reason"].startswith("ZeroDivisionError")


async def test_a_job_whose_process_was_killed_is_told_to_have_failed(redis: Redis) -> None:
    lived = Lived(RICH, redis, settings=QUICK.model_copy(update={"mode": "off"}), start=START)
    await lived.jobs.wish("g", "ada", False, "lost", "classifier")
    # As far as a process came that was killed then.
    assert await lived.jobs.take_wish("g")
    again = Lived(RICH, redis, settings=lived.settings, start=START)
    await again.tuner.tick()
    job = await again.jobs.load("lost") or {}
    assert (job["status"], job["by"], job["group"], job["kind"]) == ("failed", "ada", "g", "classifier")
    await again.tuner.tick()
    assert len(await again.jobs.recent()) == 1
