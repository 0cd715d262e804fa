"""The tuner on planted worlds, with the real control store: publish, promote, roll back, refuse, approve, repair.

Each shift says within how many requests it is answered.
"""

from __future__ import annotations

import math
import time
from pathlib import Path

import pytest
from redis.asyncio import Redis

from benchmarks.tuning.lived import SETTINGS, Lived
from benchmarks.tuning.world import World, truth
from router.control.document import Canary, GroupTuning
from router.control.store import Conflict
from router.tuning.records import Record
from router.tuning.report import markdown, write
from router.tuning.service import TuningError, TuningService, changed

START = {"int8": 0.2, "int4": 0.2}
RICH = World(shadow=0.8, explore=0.1)
QUICK = SETTINGS.model_copy(update={"interval_s": 1e9, "max_records": 4000})
"""Jobs only when a test asks."""
BOUND = -0.008


async def statuses(lived: Lived) -> list[str]:
    return [j["status"] for j in await lived.jobs.recent()]


async def on_trial(lived: Lived, thresholds: dict[str, float]) -> None:
    document = await lived.store.current()
    canary = Canary(share=0.3, thresholds=thresholds, since=lived.now, job="trial")  # type: ignore[arg-type]
    made = GroupTuning(canary=canary)
    await lived.store.publish(changed(document, "g", made, by="test", reason="trial"), expected=document.version)


async def test_a_job_with_too_little_data_changes_nothing_and_says_so(redis: Redis) -> None:
    lived = Lived(World(shadow=0.05), redis, settings=QUICK, start=START)
    await lived.live(600, 300)
    job = await lived.tuner.job("g")
    assert job["status"] == "refused"
    assert "quality labels" in job["reason"]
    assert (await lived.store.current()).version == 0
    assert job["reason"] in markdown(job)


async def test_a_wish_outlives_a_tick_that_somebody_else_overtook(
    redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    lived = Lived(World(), redis, settings=QUICK.model_copy(update={"mode": "off"}))
    await lived.jobs.wish("g", "ada", True)
    await lived.jobs.wish("g", "bob", True, "bobs")

    async def overtaken(*_: object, **__: object) -> dict[str, object]:
        raise Conflict(2, 1)

    monkeypatch.setattr(lived.tuner, "job", overtaken)
    with pytest.raises(Conflict):
        await lived.tuner.tick()
    monkeypatch.undo()
    for who, more in (("ada", True), ("bob", False)):
        # With a wish that waits there is something left to do.
        assert await lived.tuner.tick() == more
        (newest,) = await lived.jobs.recent(limit=1)
        assert newest["by"] == who
    assert newest["id"] == "bobs"


async def test_one_groups_failure_takes_no_other_groups_turn(redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    lived = Lived(World(), redis, settings=QUICK.model_copy(update={"mode": "off"}))
    lived.tuner.groups = dict.fromkeys(("f", "g"), lived.tuner.groups["g"])
    await lived.jobs.wish("f", "ada", True)
    turns = []

    async def turn(name: str, *_: object) -> None:
        turns.append(name)
        if name == "f":
            raise OSError("disk full")

    monkeypatch.setattr(lived.tuner, "tick_group", turn)
    for _ in range(2):
        with pytest.raises(OSError, match="disk full"):
            await lived.tuner.tick()
    assert turns == ["f", "g", "f", "g"]
    assert (await lived.jobs.take_wish("f") or {})["by"] == "ada"


async def test_a_look_that_took_long_is_not_repeated_at_once(redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    lived = Lived(World(), redis, settings=QUICK)
    looks = []

    async def slow(*_: object) -> None:
        looks.append(lived.now)
        end = time.process_time() + 0.1
        while time.process_time() < end:
            pass

    monkeypatch.setattr(lived.tuner, "_look", slow)
    for later in (0.0, 1.5, 1.0):
        lived.now += later
        await lived.tuner.tick()
    # 0.1 s of CPU and a little: more than 2 s of rest, and less than 2.5.
    assert looks == [looks[0], looks[0] + 2.5]


async def test_what_was_recorded_under_another_classifier_is_left_out_whoever_changed_it(redis: Redis) -> None:
    lived = Lived(RICH, redis, settings=QUICK.model_copy(update={"mode": "off"}), start=START)
    asked: list[float] = []

    async def read(group: str, since: float, limit: int) -> list[Record]:
        asked.append(since)
        return []

    lived.tuner._read = read
    changes = []
    for digest in ("", "a" * 64, "a" * 64, "b" * 64, ""):
        document = await lived.store.current()
        if document.groups.get("g", GroupTuning()).classifier != digest:
            made = GroupTuning(classifier=digest)
            await lived.store.publish(changed(document, "g", made, by="ann", reason="x"), expected=document.version)
            changes.append(lived.now)
        await lived.jobs.wish("g", "ann", True)
        await lived.tuner.tick()
        lived.now += 10.0
    assert asked == [0.0, changes[0], changes[0], changes[1], changes[2]]


async def test_the_whole_loop_once_promotes_what_gains_and_keeps_the_bound(redis: Redis, tmp_path: Path) -> None:
    lived = Lived(RICH, redis, seed=3, settings=QUICK, start=START)
    await lived.live(2000, 1000)
    before = truth(RICH, await lived.thresholds(), count=2000)
    job = await lived.tuner.job("g")
    assert job["status"] == "canary", job["reason"]
    tuning = await lived.tuning()
    assert tuning.canary is not None
    assert tuning.canary.job == job["id"]
    assert tuning.canary.share == QUICK.canary_share
    for _ in range(8):
        await lived.live(1000, 1000)
        if (await lived.tuning()).canary is None:
            break
    done = await lived.jobs.load(job["id"])
    assert done is not None
    assert done["status"] == "promoted", done
    after = truth(RICH, await lived.thresholds(), count=2000)
    assert after.goodput > before.goodput * 1.02
    assert after.quality >= BOUND
    bounds = (await lived.tuning()).bounds
    assert all(
        low <= t <= high for t, (low, high) in ((t, bounds[p]) for p, t in (await lived.tuning()).thresholds.items())
    )
    # The report: what it saw, the frontier with both points marked, and what came true.
    text = write(done, tmp_path).read_text()
    for heading in ("## What it saw", "## Candidates", "## What came true", "**chosen**", "current"):
        assert heading in text
    plot = (tmp_path / f"{job['id']}.svg").read_text()
    assert "chosen" in plot
    assert "current" in plot
    versions = [d.reason for d in await lived.store.history()]
    assert all(job["id"] in reason for reason in versions)


async def test_a_bad_canary_is_rolled_back_within_3000_requests(redis: Redis) -> None:
    # All at INT4: three times the margin.
    lived = Lived(RICH.but(loss={"int8": 0.03, "int4": 0.3}), redis, settings=QUICK, start=START)
    await on_trial(lived, {"int8": 1.0, "int4": 1.0})
    while (await lived.tuning()).canary is not None:
        assert lived.served < 3000
        await lived.live(500, 500)
    assert (await lived.tuning()).thresholds == {}
    assert "rolled back" in (await lived.store.current()).reason


async def test_an_undecided_canary_ends(redis: Redis) -> None:
    settings = QUICK.model_copy(update={"canary_max_s": 60.0, "canary_min_records": 100_000})
    lived = Lived(RICH.but(shadow=0.02), redis, settings=settings, start=START)
    await on_trial(lived, {"int8": 0.21, "int4": 0.2})
    await lived.live(1000, 1000)
    assert (await lived.tuning()).canary is None
    assert "undecided" in (await lived.store.current()).reason


async def test_a_bad_checkpoint_is_stopped_within_1500_requests(redis: Redis) -> None:
    lived = Lived(RICH, redis, seed=5, settings=QUICK, start=START)
    await lived.live(1500, 500)
    assert (await lived.tuning()).thresholds == {}
    lived.world = RICH.but(loss={"int8": 0.03, "int4": 0.8})
    broken = lived.served
    while (await lived.thresholds())["int4"] > 0.0:
        assert lived.served - broken < 1500
        await lived.live(500, 500)
    # INT8 goes on.
    assert (await lived.thresholds())["int8"] == START["int8"]
    assert truth(lived.world, await lived.thresholds(), count=1500).quality >= BOUND
    job = await lived.jobs.load((await lived.jobs.recent())[0]["id"])
    assert job is not None
    assert "quality of int4 fell" in job["reason"]
    assert "## Alarms" in markdown(job)


async def test_traffic_that_turns_hard_moves_to_full_precision_by_itself(redis: Redis) -> None:
    lived = Lived(RICH, redis, seed=6, settings=QUICK, start=START)
    await lived.live(1000, 500)
    lived.world = RICH.but(hard=6.0, rate=4.0)
    await lived.live(1000, 500)
    # Risks tell: the same thresholds let fewer pass, nothing had to be changed, and the bound held throughout.
    assert (await lived.tuning()).thresholds == {}
    assert truth(lived.world, await lived.thresholds(), count=1500).quality >= BOUND


@pytest.mark.soak
async def test_harder_than_the_risks_say_is_answered_within_6000_requests(redis: Redis) -> None:
    lived = Lived(RICH, redis, seed=7, settings=QUICK, start=START)
    await lived.live(1000, 500)
    lived.world = RICH.but(loss={"int8": 0.12, "int4": 0.3})
    changed_at = lived.served
    while truth(lived.world, await lived.thresholds(), count=1000).quality < BOUND:
        assert lived.served - changed_at < 6000
        await lived.live(1000, 1000)
    assert "published" in await statuses(lived)


@pytest.mark.soak
async def test_a_variant_at_half_speed_makes_a_new_job_within_1000_requests(redis: Redis) -> None:
    lived = Lived(RICH.but(rate=6.0), redis, seed=8, settings=QUICK, start=START)
    await lived.live(2000, 1000)
    first = await lived.tuner.job("g", dry_run=True)
    curve = lived.world.curves["int4"]
    lived.world = lived.world.but(
        curves={
            **lived.world.curves,
            "int4": curve._replace(itl_base=2 * curve.itl_base, itl_per_running=2 * curve.itl_per_running),
        }
    )
    await lived.live(1000, 1000)
    jobs = await lived.jobs.recent()
    assert jobs[0]["id"] != first["id"]
    assert "int4 takes" in jobs[0]["reason"]


@pytest.mark.soak
async def test_one_poisoned_key_neither_stops_a_variant_nor_moves_a_threshold(redis: Redis) -> None:
    world = RICH.but(feedback=0.3, poison=0.0, poisoned_share=0.6)
    lived = Lived(world, redis, seed=9, settings=QUICK, start=START)
    await lived.live(2000, 1000)
    assert (await lived.store.current()).version == 0
    job = await lived.tuner.job("g", dry_run=True)
    assert list(job["report"]["keys_left_out"]) == ["key0"]
    mean, low, high, _ = job["report"]["candidates"][0]["quality"]["dr"]
    assert low <= truth(RICH, START, count=3000).quality <= high
    assert math.isfinite(mean)


async def test_manual_mode_waits_for_a_person(redis: Redis) -> None:
    settings = QUICK.model_copy(update={"mode": "manual"})
    lived = Lived(RICH, redis, seed=3, settings=settings, start=START)
    service = TuningService(lived.jobs, lived.store, ["g"])
    await lived.live(2000, 1000)
    asked = await service.start("g", "ann")
    assert asked == {"group": "g", "accepted": True, "dry_run": False, "job": asked["job"], "waiting": 1}
    await lived.tuner.tick()
    job = (await service.jobs("g"))[0]
    assert (job["status"], job["by"]) == ("proposed", "ann")
    assert (await lived.store.current()).version == 0
    approved = await service.approve(job["id"], "bob")
    document = await lived.store.current()
    assert approved["version"] == document.version == 1
    assert document.by == "bob"
    assert document.groups["g"].canary is not None
    with pytest.raises(TuningError, match="not proposed"):
        await service.approve(job["id"], "bob")
    assert (await service.reject(job["id"], "bob"))["status"] == "rejected"
    assert (await lived.tuning()).canary is None
    with pytest.raises(TuningError, match="nothing to reject"):
        await service.reject(job["id"], "bob")


async def test_a_paused_group_is_left_alone(redis: Redis) -> None:
    lived = Lived(RICH.but(loss={"int8": 0.03, "int4": 0.9}), redis, settings=QUICK, start=START)
    service = TuningService(lived.jobs, lived.store, ["g"])
    assert (await service.pause("g", "ann"))["version"] == 1
    assert (await service.pause("g", "ann"))["version"] == 1
    await lived.live(1000, 500)
    assert (await lived.store.current()).version == 1
    assert (await service.status())["groups"]["g"]["paused"] is True
    await service.pause("g", "ann", paused=False)
    await lived.live(500, 500)
    assert (await lived.thresholds())["int4"] == 0.0


async def test_what_is_not_there_is_said(redis: Redis) -> None:
    lived = Lived(RICH, redis)
    service = TuningService(lived.jobs, lived.store, ["g"])
    for call in (service.start("x", "a"), service.pause("x", "a"), service.report("x"), service.approve("x", "a")):
        with pytest.raises(TuningError) as caught:
            await call
        assert caught.value.status == 404
