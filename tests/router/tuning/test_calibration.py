"""Risks against pairs: by precision, in the job, in the admin API, and in every worker's gauges."""

from __future__ import annotations

from redis.asyncio import Redis

from benchmarks.tuning.lived import SETTINGS, Lived
from benchmarks.tuning.world import FACTS, World, record, traffic
from router.tuning.calibration import calibrations, show
from router.tuning.evidence import gather
from router.tuning.jobs import Jobs
from router.tuning.records import Label, Record
from router.tuning.report import markdown
from router.tuning.service import TuningService


def pairs(risk: float, worse: int, equal: int) -> list[Record]:
    import random

    (one,) = record(World(shadow=0.0), traffic(World(), 1, random.Random(1)), {}, random.Random(1))
    options = tuple(o._replace(risk=risk) if o.variant == "int4" else o for o in one.options)
    values = [0.0] * worse + [1.0] * equal
    return [
        one._replace(variant="int4", options=options, labels=(Label("shadow:match", v, 1.0, "", one.at),))
        for v in values
    ]


def test_error_and_bias_are_those_of_the_pairs() -> None:
    records = pairs(0.1, worse=30, equal=70)
    (found,) = calibrations(records, gather(records, FACTS.reference, 0.2), FACTS)
    assert (found.precision, found.pairs) == ("int4", 100)
    assert (round(found.error, 6), round(found.bias, 6)) == (0.2, -0.2)
    few = pairs(0.1, worse=3, equal=7)
    assert calibrations(few, gather(few, FACTS.reference, 0.2), FACTS) == []


async def test_a_job_tells_of_judges_and_risks_and_workers_show_it(redis: Redis) -> None:
    settings = SETTINGS.model_copy(update={"interval_s": 1e9, "max_records": 4000})
    lived = Lived(
        World(shadow=0.8, explore=0.1, feedback=0.3), redis, settings=settings, start={"int8": 0.2, "int4": 0.2}
    )
    await lived.live(1500, 1500)
    job = await lived.tuner.job("g", dry_run=True)
    rows = job["report"]["calibration"]
    assert {row["precision"] for row in rows} == {"int8", "int4"}
    assert job["report"]["judges"]
    text = markdown(job)
    assert "against people" in text
    assert "calibration error" in text
    status = await TuningService(Jobs(redis), lived.store, ["g"]).status()
    assert status["groups"]["g"]["calibration"] == rows
    assert status["groups"]["g"]["judges"] == job["report"]["judges"]
    shown: dict[tuple[str, str], tuple[float, float]] = {}
    await show(Jobs(redis), ["g", "h"], lambda g, p, error, bias: shown.update({(g, p): (error, bias)}))
    assert shown == {("g", row["precision"]): (row["error"], row["bias"]) for row in rows}
