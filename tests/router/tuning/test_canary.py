"""A trial's level holds however often one looks, also where its first records are gone at the next look."""

from __future__ import annotations

import random
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from redis.asyncio import Redis

from benchmarks.tuning.lived import SETTINGS, Lived
from benchmarks.tuning.world import FACTS, World
from router.config.loop import TuningConfig
from router.control.document import Canary, GroupTuning
from router.tuning import canary as trials
from router.tuning.records import Label, Record
from router.tuning.service import changed

MARGIN = 0.05
SETTINGS_HERE = TuningConfig(margin=MARGIN, canary_max_s=1e9, canary_min_records=100)


def answered(at: int, rng: random.Random, worse: float) -> Record:
    arm = "canary" if rng.random() < 0.5 else "stable"
    label = Label("shadow:match", float(rng.random() >= worse), 1.0, "", float(at))
    return Record(
        id=f"r{at}",
        at=float(at),
        group="g",
        scenario="realtime",
        version="1",
        arm=arm,
        explored=False,
        variant="int4" if arm == "canary" else "fp16",
        options=(),
        risks={"int4": 0.1},
        prompt_tokens=10,
        completion_tokens=10,
        ttft_s=0.1,
        e2e_s=0.2,
        ok=True,
        labels=(label,) if arm == "canary" else (),
    )


def verdict(seed: int, worse: float, *, kept: int = 400, step: int = 150, requests: int = 3000) -> str:
    """How a trial ends of which only the newest records are kept."""
    rng, records, told = random.Random(seed), list[Record](), None
    for at in range(1, requests + 1):
        records = [*records[-kept + 1 :], answered(at, rng, worse)]
        if at % step:
            continue
        part = trials.stretch(records, 0.0, float(at), told)
        told = list(part)
        trial = trials.judge(
            records, FACTS, SETTINGS_HERE, since=part.since, now=float(at), number=part.number, began=0.0
        )
        if trial.verdict != "continue":
            return trial.verdict
    return "continue"


def test_looks_at_a_window_that_moves_on_promote_nothing_at_the_margin() -> None:
    # Exactly as much worse as is no longer acceptable: one trial in twenty may be promoted, however often one looks.
    assert Counter(verdict(seed, MARGIN) for seed in range(5))["promote"] <= 1


def test_what_is_clear_is_still_seen() -> None:
    assert [verdict(1, 0.0), verdict(2, 4 * MARGIN)] == ["promote", "rollback"]


@given(st.floats(1e-6, 0.5))
def test_the_levels_of_all_stretches_add_up(alpha: float) -> None:
    assert alpha * 0.999 < sum(trials.level(alpha, number) for number in range(60)) <= alpha * (1 + 1e-9)


async def test_a_trial_that_outlives_its_records_is_begun_anew(redis: Redis) -> None:
    settings = SETTINGS.model_copy(update={"interval_s": 1e9, "max_records": 300, "canary_min_records": 100_000})
    lived = Lived(World(shadow=0.02), redis, settings=settings, start={"int8": 0.2, "int4": 0.2})
    canary = Canary(share=0.3, thresholds={"int8": 0.21}, since=lived.now, job="trial")
    document = await lived.store.current()
    made = changed(document, "g", GroupTuning(canary=canary), by="test", reason="trial")
    await lived.store.publish(made, expected=document.version)
    seen = []
    for _ in range(4):
        await lived.live(200, 200)
        job = await lived.jobs.load("trial") or {}
        seen.append((job["stretch"][1], job["stretch"][0], job["trial"]["requests"]))
        lived.now += 60.0
    assert [number for number, _, _ in seen] == [0, 1, 1, 2]
    assert seen[0][1] == canary.since < seen[1][1] == seen[2][1] < seen[3][1]
    assert 0 < seen[2][2] < 200
