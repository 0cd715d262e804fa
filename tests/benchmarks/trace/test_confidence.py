"""Other ways to judge whether a variant is in time."""

from __future__ import annotations

import random

import pytest

from benchmarks.trace.confidence import WAYS, Judge, chosen, kinds, lines, one
from benchmarks.trace.workload import Workload
from benchmarks.world.served import Served
from benchmarks.world.traffic import Arrival, Row
from benchmarks.world.truth import Truth, Worth
from router.decision import Inputs, RequestFacts, Scenario, Speed, VariantState
from router.decision.policies import adaptive

TARGETS = Scenario("realtime", 1.0, 15.0, "quality")


def asked(*waits: float, itls: tuple[float, ...] = (0.03, 0.02)) -> Inputs:
    names = (("fp16", 16.0), ("int4", 4.0))
    variants = tuple(
        VariantState(name, name, rank, True, Speed(wait, 0.0, 0.0, itl))
        for (name, rank), wait, itl in zip(names, waits, itls, strict=True)
    )
    return Inputs(RequestFacts(10, 101, long_output_tokens=101), {"int4": 1.0}, {}, variants, TARGETS)


def served(inputs: Inputs, ttft_s: float, tokens: int = 100) -> Served:
    decision = adaptive.decide(inputs)
    arrival, worth = Arrival(0.0, 10, tokens, {}), Worth(1.0, 1.0, 1.0, 1.0)
    return Served(0, arrival, decision.variant or "", "fp16", 0, decision, ttft_s, 0.01, ttft_s + 1.0, 2.0, worth)


@pytest.mark.parametrize(("waits", "likeliest"), [((1.2, 1.9), "fp16"), ((1.9, 1.2), "int4"), ((2.1, 2.9), "int4")])
def test_the_likeliest_is_nearest_to_its_targets_while_any_is_near(waits: tuple[float, float], likeliest: str) -> None:
    inputs = asked(*waits)
    assert adaptive.decide(inputs).variant == "int4"
    assert Judge(*WAYS["foretold"]).decide(inputs) == adaptive.decide(inputs)
    found = Judge(*WAYS["likeliest"]).decide(inputs)
    assert (found.variant, found.reason) == (likeliest, "latency_missed")


def test_the_factor_becomes_the_quantile_of_what_comes() -> None:
    judging, generator, inputs = Judge(*WAYS["TTFT 0.9"]), random.Random(1), asked(0.8, 0.1)
    assert judging.decide(inputs).variant == "fp16"
    found = []
    for _ in range(4000):
        judging.learn(served(inputs, 0.8 * generator.uniform(0.5, 2.5)))
        found.append(judging.factors["fp16"])
    assert sum(found[1000:]) / 3000 == pytest.approx(2.3, abs=0.1)
    decision = judging.decide(inputs)
    assert (decision.variant, decision.reason) == ("int4", "quality_gave_way")


def test_a_longer_answer_is_late_sooner() -> None:
    judging, generator, inputs = Judge(*WAYS["length 0.95"]), random.Random(1), asked(0.1, 0.1, itls=(0.03, 0.001))
    assert adaptive.decide(inputs).variant == "fp16"
    for _ in range(2000):
        judging.learn(served(inputs, 0.1, generator.randint(1, 1000)))
    assert judging.long_tokens == pytest.approx(950, abs=60)
    assert judging.decide(inputs).variant == "int4"


def test_missed_requests_are_told_apart() -> None:
    late, first, whole = served(asked(3.0, 3.0), 3.0), served(asked(0.5, 0.5), 1.5), served(asked(0.5, 0.5), 0.5)
    assert kinds([late, first, first, whole], TARGETS) == {"late everywhere": 1, "first token": 2, "whole answer": 1}
    assert chosen(first).ttft_s == pytest.approx(0.5)


def test_every_way_serves_all_and_is_compared_with_the_shipped_one() -> None:
    generator = random.Random(2)
    rows = [
        (Row(0.2 * i, generator.randint(10, 4000), generator.randint(10, 400)), "realtime", {"int8": 0.0, "int4": 0.0})
        for i in range(300)
    ]
    load = Workload("made up", rows, {"int8": 0.1, "int4": 0.1})
    results = [one(way, "even", 2.0, 1, load, 6, Truth(seed=1)) for way in WAYS]
    told = lines(results)
    assert [row[2] for row in told] == list(WAYS)
    assert told[0][4].startswith("+0.00")
    for result in results:
        assert sum(result["kinds"].values()) == round(300 * result["missed"])
