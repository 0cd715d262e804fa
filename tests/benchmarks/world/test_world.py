"""The world against queueing theory, and that what decides in it is the router's own code."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from backends.settings import SimulatorSettings
from benchmarks.world.hardware import VariantSpec
from benchmarks.world.labels import poisoned, several, shadow, thumbs
from benchmarks.world.measures import measure, met
from benchmarks.world.scenarios import with_scenarios
from benchmarks.world.served import Served
from benchmarks.world.traffic import Arrival, beta_risks, lognormal, mixed, poisson
from benchmarks.world.truth import Truth
from benchmarks.world.world import World
from router.decision import CanaryArm, Exploration
from router.tuning.records import Record

THREE = (VariantSpec("fp16"), VariantSpec("int8"), VariantSpec("int4"))
DRAW = mixed(lognormal(400, 80), beta_risks())
RISKS = {"int8": 0.02, "int4": 0.1}


def arrivals(rate: float, seconds: float, seed: int = 1, scenario: str = "realtime") -> list[Arrival]:
    return list(poisson(rate, seconds, DRAW, seed=seed, scenario=scenario))


def ran(rate: float = 20.0, seconds: float = 60.0, **options: object) -> list[Served]:
    world = World(THREE, Truth(seed=1), **{"thresholds": {"int8": 0.1, "int4": 0.05}, **options})  # type: ignore[arg-type]
    return world.run(arrivals(rate, seconds))


def one_server(**settings: object) -> VariantSpec:
    """No batching, so that theory of one server holds."""
    return VariantSpec("fp16", settings=SimulatorSettings.model_validate({"max_num_seqs": 1, **settings}))


def test_one_place_waits_as_pollaczek_and_khinchine_say() -> None:
    # M/G/1: mean wait = rate * E[S^2] / (2 (1 - load)). The service times are read off the run itself.
    generator, at, plan = random.Random(3), 0.0, []
    for _ in range(6000):
        at += generator.expovariate(1.5)
        plan.append(Arrival(at, 8, max(1, round(generator.expovariate(1 / 40))), {}))
    world = World([one_server()], Truth(), seed=1)
    rows = sorted(world.run(plan), key=lambda s: s.arrival.at)
    ends = [0.0, *(s.ended for s in rows)]
    service = [s.ended - max(before, s.arrival.at) for s, before in zip(rows, ends, strict=False)]
    mean, square = sum(service) / len(service), sum(x * x for x in service) / len(service)
    expected = 1.5 * square / (2 * (1 - 1.5 * mean))
    waited = sum(s.e2e_s - x for s, x in zip(rows, service, strict=True)) / len(rows)
    assert 0.3 < 1.5 * mean < 0.8
    assert waited == pytest.approx(expected, rel=0.15)


def test_littles_law() -> None:
    inside: list[int] = []
    world = World(THREE, Truth(), thresholds={"int8": 1.0, "int4": 1.0})
    world.every(0.05, lambda w: inside.append(sum(e.running + len(e.waiting) for e in w.engines.values())))
    rows = world.run(arrivals(60, 60))
    rate = len(rows) / 60
    assert sum(inside) / (60 / 0.05) == pytest.approx(rate * sum(s.e2e_s for s in rows) / len(rows), rel=0.05)


def test_an_idle_world_answers_in_the_rooflines_time() -> None:
    spec = VariantSpec("fp16")
    (served,) = World([spec], Truth()).run([Arrival(1.0, 500, 11, {})])
    roofline = spec.engine().roofline
    prefill = roofline.step_s(500, 0, 500 * 501 // 2)
    decode = sum(roofline.step_s(1, 500 + i, 501 + i) for i in range(10))
    assert served.ttft_s == pytest.approx(prefill)
    assert served.e2e_s == pytest.approx(prefill + decode)
    assert served.itl_s == pytest.approx(decode / 10)


def test_the_same_seed_gives_the_same_run_and_another_does_not() -> None:
    explored = {"exploration": Exploration(0.1, 1.0)}
    first, again, other = (ran(seed=seed, **explored) for seed in (1, 1, 2))
    assert [(s.variant, s.ended, s.worth) for s in first] == [(s.variant, s.ended, s.worth) for s in again]
    assert [s.variant for s in first] != [s.variant for s in other]


def test_a_slowed_variant_loses_its_traffic() -> None:
    world = World(THREE, Truth(), thresholds={"int8": 1.0, "int4": 1.0})
    world.at(60.0, lambda w: w.slow_down("int4", 8.0))
    rows = world.run(arrivals(10, 120))
    before, after = (
        Counter(s.precision for s in rows if (s.arrival.at < 60) is early and not 60 < s.arrival.at < 70)
        for early in (True, False)
    )
    assert before["int4"] / before.total() > 0.6
    assert after["int4"] / after.total() < 0.2


def test_a_bad_checkpoint_shows_in_quality_alone() -> None:
    def run(shift: bool) -> list[Served]:
        world = World(THREE, Truth(), thresholds={"int8": 1.0, "int4": 1.0})
        if shift:
            world.at(30.0, lambda w: w.worsen("int4", 0.3))
        return world.run(arrivals(10, 60))

    good, bad = run(False), run(True)
    assert [s.variant for s in good] == [s.variant for s in bad]
    for start, end, lost in ((0, 29, 0.0), (33, 60, 0.3)):
        pairs = [(g, b) for g, b in zip(good, bad, strict=True) if start < g.arrival.at < end and g.precision == "int4"]
        drop = sum(g.worth.expected - b.worth.expected for g, b in pairs) / len(pairs)
        assert drop == pytest.approx(lost, abs=0.05)


def test_thresholds_and_a_canary_change_while_it_runs() -> None:
    def canary(world: World) -> None:
        arm = CanaryArm(0.25, {"int8": 1.0, "int4": 1.0}, "2-canary")
        world.control = replace(world.control, thresholds={}, version="2", canary=arm)

    world = World(THREE, Truth(), thresholds={"int8": 1.0, "int4": 1.0})
    world.at(30.0, canary)
    rows = world.run(arrivals(20, 90))
    late = [s for s in rows if s.arrival.at > 30]
    assert {s.decision.version for s in rows if s.arrival.at < 30} == {"v1"}
    assert {s.precision for s in late if s.decision.arm == "stable"} == {"fp16"}
    tried = [s for s in late if s.decision.arm == "canary"]
    assert len(tried) / len(late) == pytest.approx(0.25, abs=0.06)
    assert all(s.decision.version == "2-canary" for s in tried)
    assert {s.precision for s in tried} & {"int8", "int4"}


def test_records_hold_propensities_that_are_met() -> None:
    records: list[Record] = []
    world = World(
        THREE, Truth(), exploration=Exploration(0.2, 1.0), record=records.append, labeller=shadow(1.0), keep=False
    )
    world.run(arrivals(20, 120))
    assert world.served == []
    assert len(records) > 2000
    for record in records:
        assert sum(o.propensity for o in record.options) == pytest.approx(1.0)
        assert next(o for o in record.options if o.variant == record.variant).propensity > 0.0
        assert record.ttft_target_s == 1.0
    others = sum(r.variant != "fp16" for r in records)
    assert others / len(records) == pytest.approx(0.2 * 2 / 3, abs=0.03)
    lost = [r for r in records if r.variant == "int4" and r.labels[0].value < (r.labels[0].reference or 0.0)]
    expected = sum(r.risks["int4"] for r in records if r.variant == "int4")
    assert len(lost) == pytest.approx(expected, abs=3 * max(1.0, expected) ** 0.5)


def test_what_labellers_say() -> None:
    world = World([VariantSpec("int4")], Truth(seed=2))
    (good, *_) = world.run([Arrival(0.0, 10, 5, {"int4": 0.0}, "batch", "k1")])
    labels = {}
    for name, labeller in {
        "thumbs": thumbs(1.0, delay_s=5.0),
        "noisy": thumbs(1.0, noise=1.0),
        "poison": poisoned("k1", {"int4": 0.25}),
        "other": poisoned("k2", {"int4": 0.25}),
        "all": several(thumbs(1.0), shadow(1.0)),
        "none": thumbs(0.0),
    }.items():
        world = World([VariantSpec("int4")], Truth(seed=2), labeller=labeller)
        labels[name] = world.record_of(good).labels
    value = good.worth.got
    assert [(one.value, one.key, one.at) for one in labels["thumbs"]] == [(value, "k1", good.ended + 5.0)]
    assert labels["noisy"][0].value == 1.0 - value
    assert [one.value for one in labels["poison"]] == [0.25]
    assert labels["other"] == labels["none"] == ()
    assert [one.source for one in labels["all"]] == ["thumbs", "shadow:match"]


def test_quality_is_what_was_planted() -> None:
    truth = Truth(base=0.8, gain={"int4": 0.05}, scale={"int4": 2.0}, seed=5)
    arrival = Arrival(0.0, 1, 1, RISKS)
    worths = [truth.worth("int4", arrival, i) for i in range(20_000)]
    assert sum(w.got for w in worths) / 20_000 == pytest.approx(0.8 - 0.2 + 0.05, abs=0.01)
    assert worths[0].expected == pytest.approx(0.65)
    assert sum(w.full for w in worths) / 20_000 == pytest.approx(0.8, abs=0.01)
    plain = Truth(seed=5)
    for i in range(2000):
        fp16, int8, int4 = (plain.worth(p, arrival, i).got for p in ("fp16", "int8", "int4"))
        assert fp16 >= int8 >= int4


def test_targets_decide_what_counts() -> None:
    config = with_scenarios(realtime={"ttft_ms": 1.0, "e2e_ms": None})
    world = World(THREE, Truth(), config=config)
    rows = world.run([*arrivals(5, 20), *(a._replace(at=a.at + 20) for a in arrivals(5, 20, scenario="batch"))])
    figures = measure(rows, world.scenarios)
    assert not any(met(s, world.scenarios) for s in rows if s.arrival.scenario == "realtime")
    assert all(met(s, world.scenarios) for s in rows if s.arrival.scenario == "batch")
    assert figures.violations == pytest.approx(sum(s.arrival.scenario == "realtime" for s in rows) / len(rows))
    assert figures.ttft_p50 > 0.001
    assert 0 < figures.goodput_tps < figures.tps


def test_what_is_inside_at_the_end_was_not_served() -> None:
    world = World([one_server()], Truth())
    rows = world.run([Arrival(0.0, 10, 50, {}), Arrival(0.1, 10, 5000, {})], until=10.0)
    assert [s.done for s in rows] == [True, False]
    assert measure(rows, world.scenarios).violations == 0.5


def test_two_workers_share_the_replicas() -> None:
    world = World(THREE, Truth(), workers=2)
    rows = world.run(arrivals(20, 30))
    replicas = [r for f in world.fleets for v in f.groups["world"].variants.values() for r in v.replicas]
    assert sum(r.requests for r in replicas) == len(rows)
    views = [fleet.groups["world"].variants["fp16"].replicas[0] for fleet in world.fleets]
    assert all(v.requests > 0 and v.inflight == 0 for v in views)


def test_a_rate_that_varies() -> None:
    found = list(poisson(lambda t: 50.0 if t > 50 else 10.0, 100.0, DRAW, seed=1, peak=50.0))
    late = sum(a.at > 50 for a in found)
    assert late == pytest.approx(2500, rel=0.1)
    assert len(found) - late == pytest.approx(500, rel=0.2)
