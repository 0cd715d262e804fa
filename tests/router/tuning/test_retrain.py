"""Retraining jobs: thresholds carried over, pairs read, proposals approved once, and what is refused."""

from __future__ import annotations

import logging
import random
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from redis.asyncio import Redis

from classifier import load
from classifier.adapt import Adaption, Moved
from classifier.features import NAMES
from classifier.models import base_score
from router.config.loop import TuningConfig
from router.control.artefacts import Artefacts
from router.control.document import ControlDocument, GroupTuning
from router.control.store import ControlStore
from router.tuning.jobs import Jobs
from router.tuning.pairs import read_pairs
from router.tuning.retrain import Retrainer, carried
from router.tuning.service import TuningError, TuningService

MODE = {"auto": TuningConfig(mode="automatic", retrain_pairs=100), "manual": TuningConfig(mode="manual")}


def moved(*rows: tuple[float, float]) -> list[Moved]:
    return [Moved("int4", before, after, 1.0) for before, after in rows]


def test_a_threshold_lets_the_same_share_pass() -> None:
    rows = moved((0.1, 0.2), (0.2, 0.1), (0.3, 0.6), (0.4, 0.9))
    assert carried({"int4": 0.25}, rows) == {"int4": 0.2}
    assert carried({"int4": 0.05}, rows) == {"int4": 0.0}


def test_what_passed_all_pairs_opens_no_further_than_they_reach() -> None:
    rows = moved((0.1, 0.2), (0.2, 0.3))
    assert carried({"int4": 0.5}, rows) == {"int4": 0.3}
    assert carried({"int4": 1.0}, rows) == {"int4": 1.0}


def test_of_a_precision_without_pairs_nobody_knows() -> None:
    assert carried({"int8": 0.5, "int4": 0.5}, moved((0.1, 0.2))) == {"int8": 0.0, "int4": 0.2}


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1), st.floats(0.1, 9)), min_size=1, max_size=40),
    st.floats(0, 0.999),
)
def test_never_more_weight_passes_than_before(rows: list[tuple[float, float, float]], threshold: float) -> None:
    some = [Moved("int4", before, after, weight) for before, after, weight in rows]
    found = carried({"int4": threshold}, some)["int4"]
    passing = sum(m.weight for m in some if 0.0 < m.after <= found)
    assert passing <= sum(m.weight for m in some if m.before <= threshold) + 1e-6


@pytest.mark.parametrize("step", [0.0, 1e-9])
def test_risks_that_no_threshold_tells_apart_are_not_let_through_by_the_few_that_passed(step: float) -> None:
    rows = moved(*((i / 1000, 0.3 + i * step) for i in range(1000)))
    threshold = carried({"int4": 0.05}, rows)["int4"]
    assert sum(m.after <= threshold for m in rows) <= 51


def entries(count: int, by: str, seed: int = 3) -> list[dict[str, Any]]:
    rng, own = random.Random(seed), load()
    made = []
    for _ in range(count):
        hard = rng.random() < 0.5
        text = " ".join(rng.choices(("cat", "sum", "list", "tree", "house"), k=rng.randint(15, 40)))
        body = {"messages": [{"role": "user", "content": text + ("? x = y + z;" * rng.randint(3, 8) if hard else ".")}]}
        features = own.features(body)
        worse = rng.random() < (0.7 if hard else 0.05)
        made.append(
            {
                "group": "g",
                "value": 0.0 if worse else 1.0,
                "reference": 1.0,
                "shadow_propensity": 0.5,
                "seen": {
                    "by": by,
                    "precision": "int4",
                    "risk": own.risk_of(features).by_precision["int4"],
                    "score": base_score(own.artefact.model, features),
                    "vector": list(features.vector),
                },
            }
        )
    return made


async def put(redis: Redis, rows: list[dict[str, Any]]) -> None:
    async with redis.pipeline(transaction=False) as pipe:
        for row in rows:
            pipe.xadd("bitgear:feedback", {"feedback": orjson.dumps(row)})
        await pipe.execute()


async def test_pairs_are_read_and_others_and_damaged_ones_counted(redis: Redis) -> None:
    good = entries(3, "mine")
    vector = good[0]["seen"]["vector"]
    broken = [
        {**good[0], "reference": None},
        {**good[0], "shadow_propensity": 0.0},
        {**good[0], "value": 7},
        {**good[0], "seen": {**good[0]["seen"], "vector": vector[:-1]}},
        {**good[0], "seen": {**good[0]["seen"], "vector": "abc"}},
        {**good[0], "seen": []},
        {**good[0], "seen": {**good[0]["seen"], "risk": 1.5}},
        {**good[0], "seen": {**good[0]["seen"], "score": 1e300}},
        {**good[0], "seen": {**good[0]["seen"], "vector": [1e308, *vector[1:]]}},
    ]
    await put(redis, [*good, *broken, *entries(2, "another"), {**good[0], "group": "h"}, {"group": "g", "value": 1}])
    await redis.xadd("bitgear:feedback", {"feedback": b"\xff{"})
    found = await read_pairs(redis, group="g", classifier="mine", since=0.0, limit=100)
    assert (len(found.pairs), found.others, found.broken) == (3, 2, len(broken) + 1)
    assert found.pairs[0].weight == 2.0
    assert len(found.pairs[0].vector) == len(NAMES)
    assert len((await read_pairs(redis, group="g", classifier="mine", since=0.0, limit=2)).pairs) == 2


def retrainer(redis: Redis) -> Retrainer:
    async def read(group: str, version: str, since: float, limit: int) -> Any:
        return await read_pairs(redis, group=group, classifier=version, since=since, limit=limit)

    made = Retrainer(ControlStore(redis), Artefacts(redis), read, logging.getLogger("test"))
    made.configured = {"g": load()}
    return made


async def run(redis: Redis, mode: str, **options: Any) -> dict[str, Any]:
    given: dict[str, Any] = {"by": "test", "dry_run": False, **options}
    job = await retrainer(redis).job("g", MODE[mode], {"int4": 0.5}, **given)
    await Jobs(redis).save(job)
    return job


async def test_automatic_mode_publishes_and_ends_what_was_made_for_other_risks(redis: Redis) -> None:
    store = ControlStore(redis)
    tuned = GroupTuning(thresholds={"int4": 0.5}, bounds={"int4": (0.1, 0.6)})
    await store.publish(ControlDocument(groups={"g": tuned}), expected=0)
    await put(redis, entries(400, load().artefact.version))
    job = await run(redis, "auto")
    assert job["status"] == "published", job["reason"]
    now = (await store.current()).groups["g"]
    assert now.classifier == job["classifier"]
    assert now.bounds == {}
    assert dict(now.thresholds) == job["thresholds"]
    found = await Artefacts(redis).get(now.classifier)
    assert found.artefact.kind in ("adapted", load().artefact.kind)
    # Whoever takes the tuned thresholds away opens nothing.
    assert found.thresholds == {"fp8": 0.0, "int8": 0.0, "nvfp4": 0.0, "mxfp4": 0.0, **job["thresholds"]}


async def test_a_proposal_is_approved_once_and_not_over_another_change(redis: Redis) -> None:
    store, service = ControlStore(redis), TuningService(Jobs(redis), ControlStore(redis), {"g"})
    await put(redis, entries(400, load().artefact.version))
    job, other = await run(redis, "manual"), await run(redis, "manual")
    assert job["status"] == other["status"] == "proposed"
    assert (await store.current()).version == 0
    assert (await service.approve(job["id"], "ann"))["status"] == "published"
    assert (await store.current()).groups["g"].classifier == job["classifier"]
    for again, told in ((job, "published, not proposed"), (other, "was changed since")):
        with pytest.raises(TuningError, match=told):
            await service.approve(again["id"], "ann")
    assert (await service.reject(other["id"], "ann"))["status"] == "rejected"


async def test_a_paused_group_is_only_proposed_to(redis: Redis) -> None:
    await ControlStore(redis).publish(ControlDocument(groups={"g": GroupTuning(paused=True)}), expected=0)
    await put(redis, entries(400, load().artefact.version))
    assert (await run(redis, "auto"))["status"] == "proposed"


async def test_too_few_pairs_are_refused_with_the_number_that_is_needed(redis: Redis) -> None:
    await put(redis, entries(30, load().artefact.version))
    job = await run(redis, "auto")
    assert job["status"] == "refused"
    assert "30 pairs" in job["reason"]


async def test_it_is_due_when_so_many_pairs_came_since_the_last_time(redis: Redis) -> None:
    made, tuning = retrainer(redis), GroupTuning()
    assert not await made.due("g", MODE["auto"], tuning, {})
    await put(redis, entries(100, load().artefact.version))
    assert await made.due("g", MODE["auto"], tuning, {})
    assert not await made.due("g", MODE["manual"], tuning, {})
    assert not await made.due("g", MODE["auto"], tuning, {"retrained_at": 4e9})


async def test_a_classifier_that_is_lost_is_told_and_other_groups_are_tuned_on(redis: Redis) -> None:
    lost = GroupTuning(classifier="1" * 64)
    await ControlStore(redis).publish(ControlDocument(groups={"g": lost}), expected=0)
    job = await run(redis, "auto")
    assert job["status"] == "refused"
    assert "111111111111 is not in Redis" in job["reason"]
    assert not await retrainer(redis).due("g", MODE["auto"], lost, {})


@pytest.mark.parametrize("broken", [ArithmeticError, ValueError])
async def test_pairs_of_which_nothing_can_be_computed_are_told(
    redis: Redis, monkeypatch: pytest.MonkeyPatch, broken: type[Exception]
) -> None:
    def fail(*_: Any) -> Any:
        raise broken("singular")

    monkeypatch.setattr("classifier.adapt.adapt", fail)
    job = await run(redis, "auto")
    assert job["status"] == "refused"
    assert broken.__name__ in job["reason"]


async def test_what_makes_no_artefact_changes_nothing(redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    def odd(*_: Any) -> Adaption:
        return Adaption({**load().artefact.content, "calibration": {}}, "better", {}, moved((0.1, 0.2)))

    monkeypatch.setattr("classifier.adapt.adapt", odd)
    job = await run(redis, "auto")
    assert (job["status"], job["classifier"], job["thresholds"]) == ("refused", None, None)
    assert "makes no artefact" in job["reason"]
    assert (await ControlStore(redis).current()).version == 0
