"""Drift as metrics: counts of one request in N, the same index whichever worker computes it, a window that forgets."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType

import pytest

import classifier
from classifier.drift import RISK, STABLE, psi
from classifier.scoring import Trained
from router.config.telemetry import DriftConfig
from router.telemetry import Metrics
from router.telemetry.drift import DriftWatch, build_drift, indices
from tests.conftest import Bitgear
from tests.support.client import chat, fetch
from tests.support.upstream import ScriptedUpstream

Start = Callable[..., Awaitable[Bitgear]]


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def scorer() -> Trained:
    return classifier.load("default", None)


def watch(scorer: Trained, clock: Clock, one_in: int = 1) -> DriftWatch:
    found = build_drift(scorer, DriftConfig(one_in=one_in, window_s=100), clock)
    assert found is not None
    return found


def test_one_in_n_is_counted_and_requests_without_risks_are_not(scorer: Trained) -> None:
    made = watch(scorer, Clock(), one_in=5)
    for _ in range(23):
        made.saw(chat("What is 2+2?"), scorer.risk(chat("What is 2+2?")).by_precision)
        made.saw(chat("What is 2+2?"), {})
    requests, counts = made.counts()
    assert requests == 4
    assert all(sum(bins) == 4 for bins in counts.values())


def test_the_window_forgets(scorer: Trained) -> None:
    clock = Clock()
    made = watch(scorer, clock)
    risks = scorer.risk(chat("x")).by_precision
    seen = []
    for now in (0.0, 49.0, 51.0, 99.0, 101.0, 149.0, 151.0, 1000.0):
        clock.now = now
        made.saw(chat("x"), risks)
        seen.append(made.counts()[0])
    assert seen == [1, 2, 3, 4, 3, 4, 3, 1]


def test_traffic_like_the_reference_is_stable_and_other_traffic_is_not(scorer: Trained) -> None:
    made = watch(scorer, Clock())
    reference = made.reference
    rng = random.Random(1)
    like = {n: [0.0] * len(s) for n, s in reference.shares.items()}
    for name, shares in reference.shares.items():
        for index in rng.choices(range(len(shares)), shares, k=2000):
            like[name][index] += 1
    assert max(indices(like, reference).values()) < STABLE
    for _ in range(600):
        made.saw(chat("def f(x):\n    return x ** 2\n" * 40), {"int4": 0.9})
    counts = made.counts()[1]
    found = indices({n: [float(c) for c in bins] for n, bins in counts.items()}, reference)
    assert found[RISK] > 0.25
    assert found[RISK] == psi(counts[RISK], reference.shares[RISK])


def test_the_metrics_say_it(scorer: Trained) -> None:
    made, metrics = watch(scorer, Clock()), Metrics(None)
    for _ in range(600):
        made.saw(chat("x"), {"int4": 0.9})
    metrics.update_drift(made)
    metrics.set_calibration("g", "int4", 0.03, -0.02)
    lines = dict(line.rsplit(" ", 1) for line in metrics.expose().decode().splitlines() if line[0] != "#")
    assert float(lines["bitgear_drift_requests"]) == 600
    assert float(lines[f'bitgear_drift_index{{feature="{RISK}"}}']) == psi(
        made.counts()[1][RISK], made.reference.shares[RISK]
    )
    assert float(lines['bitgear_calibration_error{group="g",precision="int4"}']) == 0.03
    assert float(lines['bitgear_calibration_bias{group="g",precision="int4"}']) == -0.02


def test_off_and_without_a_reference_there_is_no_watch(scorer: Trained) -> None:
    class Other:
        thresholds: Mapping[str, float] = MappingProxyType({})

        def risk(self, request: object) -> classifier.Risks:
            return classifier.Risks({}, 0.0, "x")

    assert build_drift(scorer, DriftConfig(one_in=0), Clock()) is None
    assert build_drift(Other(), DriftConfig(), Clock()) is None


async def test_a_worker_counts_its_traffic(bitgear: Start) -> None:
    async with ScriptedUpstream("g") as up:
        gear = await bitgear({"fp16": up.url}, config={"drift": {"one_in": 2}})
        for _ in range(4):
            assert (await fetch(gear.url, "/v1/chat/completions", chat(model="g"))).status == 200
        drift = gear.worker._telemetry.drift
        assert drift is not None
        assert drift.counts()[0] == 2
