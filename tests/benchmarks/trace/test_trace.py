"""The trace replay's parts on a small made-up workload; the real trace is not shipped."""

from __future__ import annotations

import gzip
import random
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks.trace.contestants import Contestant, contestants, drawn, load_only, static
from benchmarks.trace.plot import chart
from benchmarks.trace.replay import compare, run, scored
from benchmarks.trace.summary import HEADS, lines, sensitivity, summary
from benchmarks.trace.tuned import Tuned, tune
from benchmarks.trace.workload import Workload
from benchmarks.world.hardware import VariantSpec
from benchmarks.world.measures import measure
from benchmarks.world.traffic import Row, read_azure
from benchmarks.world.truth import Truth
from router.decision import POLICIES, Inputs, RequestFacts, Scenario, Speed, VariantState

THRESHOLDS = {"int8": 0.003, "int4": 0.05}
TUNED = dict.fromkeys(("even", "most INT8", "advised"), Tuned(THRESHOLDS, {"int8": (0.002, 0.004)}, ()))


@pytest.fixture
def load() -> Workload:
    generator, rows, at = random.Random(2), [], 0.0
    for _ in range(600):
        at += generator.expovariate(5.0)
        risks = {"int8": 0.0025 + 0.001 * generator.random(), "int4": 0.04 + 0.02 * generator.random()}
        rows.append((Row(at, generator.randint(10, 2000), generator.randint(10, 400)), "realtime", risks))
    return Workload("made up", rows, THRESHOLDS)


def test_gaps_are_scaled_to_the_rate(load: Workload) -> None:
    arrivals = load.at_rate(50.0)
    span = arrivals[-1].at - arrivals[0].at
    assert len(arrivals) / span == pytest.approx(50.0)
    first, last = load.rows[0][0], load.rows[-1][0]
    assert arrivals[100].at / span == pytest.approx(load.rows[100][0].at / (last.at - first.at))


def test_all_serve_the_same_on_as_many_devices(load: Workload) -> None:
    truth = Truth(seed=1)
    found = {}
    for contestant in contestants(6, THRESHOLDS, TUNED):
        assert sum(contestant.fleet.values()) == 6
        rows = run(contestant, load, 100.0, truth, 1).served
        assert sorted(s.index for s in rows) == list(range(600))
        assert sum(s.worth.full for s in rows if s.done) <= 600
        found[contestant.name] = rows
    assert {s.precision for s in found["all INT8"]} == {"int8"}
    assert {s.precision for s in found["Bitgear"]} == {"fp16", "int8", "int4"}
    bound = [s for s in found["static thresholds"] if s.arrival.risks["int4"] <= 0.05]
    assert {s.precision for s in bound} == {"int4"}


def test_a_part_begins_at_its_own_first_row(load: Workload) -> None:
    part = load.part(100, 50)
    assert len(part.rows) == 50
    assert part.rows[0][0].at == 0.0
    assert part.rows[7][0][1:] == load.rows[107][0][1:]
    assert part.rows[7][0].at == pytest.approx(load.rows[107][0].at - load.rows[100][0].at)
    with pytest.raises(ValueError, match="600"):
        load.part(580, 50)


def test_the_inner_loop_moves_thresholds_within_its_bounds(load: Workload) -> None:
    bounds = {"int8": (0.001, 0.9)}
    seen = []
    for rate in (10.0, 300.0):
        base = Contestant("x", {"fp16": 1, "int8": 1}, POLICIES["adaptive"], {"int8": 0.001}, bounds=bounds)
        world = run(base, load, rate, Truth(seed=1), 1)
        used = [s.decision.thresholds["int8"] for s in world.served]
        assert all(0.001 <= t <= 0.9 for t in used)
        seen.append(used[-1])
    assert seen[0] < 0.2 < seen[1]


def test_jobs_learn_thresholds_from_the_world(load: Workload) -> None:
    specs = [VariantSpec("fp16", 1), VariantSpec("int8", 1)]
    found = tune(specs, load, 40.0, {"int8": 1.0}, Truth(scale={"int8": 100.0}, seed=1), 1)
    assert len(found.story) == 2
    assert "too little data" in found.story[0]
    # INT8 loses a third of its answers here, and nearly all go there: the job tightens.
    assert found.thresholds["int8"] < 0.003, found
    assert found.bounds["int8"][0] <= found.thresholds["int8"] <= found.bounds["int8"][1]


def test_parts_are_put_together(load: Workload) -> None:
    planted = {"recorded": Truth(seed=1)}
    results = [r for part in (1, 2) for r in compare(load.part(200 * part, 200), 1.5, part, 6, TUNED, planted)]
    rows = summary(results)
    names = [c.name for c in contestants(6, THRESHOLDS, TUNED)]
    assert [r["policy"] for r in rows] == [*names, "random, same shares"]
    assert all(r["parts"] == 2 for r in rows)
    base = next(r for r in rows if r["policy"] == "all FP16")
    assert base["times"] == (1.0, 1.0)
    one = [r["by_scenario"]["realtime"]["goodput_rps"] for r in results if r["policy"] == "all INT4"]
    assert next(r for r in rows if r["policy"] == "all INT4")["goodput_range"] == (min(one), max(one))
    assert all(len(line) == len(HEADS) for line in lines(rows))
    assert "all INT4" in sensitivity(results)


def test_quality_under_another_truth_is_that_of_the_same_answers(load: Workload) -> None:
    contestant = next(c for c in contestants(6, THRESHOLDS, TUNED) if c.name == "all INT4")
    world = run(contestant, load, 50.0, Truth(seed=1), 1)
    same = scored(world.served, Truth(seed=1), world.scenarios)
    assert same == measure(world.served, world.scenarios)
    worse = scored(world.served, Truth(scale={"int4": 5.0}, seed=1), world.scenarios)
    assert worse.goodput_rps == same.goodput_rps
    assert worse.relative_expected < same.relative_expected - 0.2


def asked(queue_s: float, risks: dict[str, float]) -> Inputs:
    variants = (
        VariantState("fp16", "fp16", 16, True, Speed(queue_s, 0.1, 0.0, 0.02)),
        VariantState("int8", "int8", 8, True, Speed(0.0, 0.1, 0.0, 0.01)),
        VariantState("int4", "int4", 4, True, Speed(5.0, 0.1, 0.0, 0.005)),
    )
    return Inputs(RequestFacts(10, 10), risks, THRESHOLDS, variants, Scenario("realtime", 1.0, None, "quality"))


def test_what_the_baselines_look_at() -> None:
    easy, hard = {"int8": 0.0, "int4": 0.0}, {"int8": 0.9, "int4": 0.9}
    assert static(asked(9.0, easy)).variant == "int4"
    assert static(asked(9.0, hard)).variant == "fp16"
    assert load_only(asked(0.0, easy)).variant == "fp16"
    assert load_only(asked(9.0, hard)).variant == "int8"
    policy = drawn({"fp16": 0.25, "int8": 0.75}, 1)
    taken = [policy(asked(0.0, easy)).variant for _ in range(2000)]
    assert taken.count("int8") / 2000 == pytest.approx(0.75, abs=0.03)
    assert "int4" not in taken


def test_the_plot_is_svg_with_each_policy() -> None:
    results = [
        {"load": load, "policy": name, "goodput_rps": 10.0 * load, "violations": 0.1}
        for load in (0.5, 1.0)
        for name in ("a < b", "Bitgear")
    ]
    text = "".join(ElementTree.fromstring(chart(results, "chat")).itertext())
    assert "a < b" in text
    assert "Bitgear" in text


def test_reading_the_azure_format(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv.gz"
    lines = (
        "TIMESTAMP,ContextTokens,GeneratedTokens",
        "2023-11-16 18:15:46.6805900,374,44",
        "2023-11-16 18:15:47.1805900,10,0",
    )
    path.write_bytes(gzip.compress("\r\n".join(lines).encode("utf-8-sig")))
    first, second = read_azure(path)
    assert first == Row(0.0, 374, 44)
    assert second.at == pytest.approx(0.5)
    assert second[1:] == (10, 1)
