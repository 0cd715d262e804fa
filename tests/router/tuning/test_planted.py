"""A job's thresholds against the planted truth: the benchmark's first seeds (`python -m benchmarks.tuning.planted`)."""

from __future__ import annotations

from benchmarks.tuning.planted import REQUESTS, SETTINGS, WORLD, one
from benchmarks.tuning.world import truth

ORACLE = {"int8": 0.2574, "int4": 0.2622}
"""Found on a grid: the most goodput whose true quality meets the bound."""


def test_a_job_comes_near_the_oracle_and_keeps_the_bound() -> None:
    found = one(0)
    best = truth(WORLD, ORACLE, count=REQUESTS)
    assert best.quality >= -SETTINGS.margin * WORLD.level
    assert found["quality"] >= -SETTINGS.margin * WORLD.level
    assert found["goodput"] >= 0.93 * best.goodput
    assert found["model_error"]["e2e"] < 0.1
