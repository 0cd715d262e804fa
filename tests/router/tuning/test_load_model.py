"""The load model finds planted speeds again; the replay decides as the real policy does."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.tuning.world import CURVES, FACTS, World, record, serve, traffic
from router.decision.policies import adaptive
from router.decision.types import Inputs, RequestFacts, Scenario, Speed, VariantState
from router.tuning.load_model import Curve, fit_curves, held_out_error
from router.tuning.replay import Arrival, arrivals, limits, pick, replay

THRESHOLDS = {"int8": 0.25, "int4": 0.25}


def test_planted_speeds_are_found_again() -> None:
    rng = random.Random(1)
    records = record(World(), traffic(World(), 2500, rng), THRESHOLDS, rng)
    found = fit_curves(records, FACTS.variants)
    for variant, curve in CURVES.items():
        for running in (2.0, found[variant].most_seen * 0.7):
            real = curve.itl_base + curve.itl_per_running * running
            assert found[variant].itl_base + found[variant].itl_per_running * running == pytest.approx(real, rel=0.1)
        assert found[variant].ttft_per_token == pytest.approx(curve.ttft_per_token, rel=0.15)
        assert found[variant].slots == math.inf
    errors = held_out_error(records, FACTS.variants)
    assert errors is not None
    assert max(errors.values()) < 0.1


def test_slots_are_found_where_requests_wait() -> None:
    world = World(rate=5.0, curves={**CURVES, "fp16": CURVES["fp16"]._replace(slots=12.0)})
    rng = random.Random(2)
    records = record(world, traffic(world, 2000, rng), {"int8": 0.22, "int4": 0.2}, rng)
    assert 8 <= fit_curves(records, FACTS.variants)["fp16"].slots <= 16


def test_more_traffic_on_a_variant_makes_it_slower_and_relieves_the_other() -> None:
    rng = random.Random(3)
    requests = traffic(World(), 600, rng)
    curves = [CURVES[v] for v in FACTS.variants]
    none, some = (replay(requests, curves, FACTS, t) for t in ({"int8": -1.0, "int4": -1.0}, THRESHOLDS))
    mean = {k: sum(o.e2e_s) / len(o.e2e_s) for k, o in (("none", none), ("some", some))}
    assert mean["some"] < mean["none"] * 0.8
    assert all(r.risks[c] == 0.0 for r, c in zip(requests, none.choices, strict=True)), "no threshold allows a risk"


@pytest.mark.parametrize("slots", [math.inf, 6.0])
def test_the_replay_is_the_worlds_own_serving_without_exploration(slots: float) -> None:
    world = World(curves={**CURVES, "fp16": CURVES["fp16"]._replace(slots=slots)})
    requests = traffic(world, 800, random.Random(4))
    served, _, _ = serve(world, requests, [THRESHOLDS] * 800, random.Random(1), explore=False)
    found = replay(requests, [world.curves[v] for v in FACTS.variants], FACTS, THRESHOLDS)
    assert found.choices == served.choices
    assert found.ttft_s == served.ttft_s
    assert found.e2e_s == served.e2e_s
    assert max(found.ttft_s) > (2.0 if slots < math.inf else 0.0)


def test_processor_sharing_is_exact_for_two() -> None:
    # 100 ms a token per running request: 11 tokens alone, then two share.
    curve = Curve(0.0, 0.0, 0.0, 0.0, 0.1)
    facts = FACTS._replace(variants=("fp16",), precisions=("fp16",), ranks=(16.0,), prices=(1.0,))
    arrived = [
        Arrival(0.0, 1, 11, math.inf, math.inf, False, False, (0,), (0.0,), False),
        Arrival(0.5, 1, 6, math.inf, math.inf, False, False, (0,), (0.0,), False),
    ]
    found = replay(arrived, [curve], facts, {})
    # The first has 5 of 10 tokens after 0.5 s; then both need 5 more at 0.2 s each.
    assert found.e2e_s == pytest.approx([1.5, 1.0])


def test_recorded_requests_become_arrivals_in_order_of_their_beginning() -> None:
    rng = random.Random(4)
    records = record(World(), traffic(World(), 50, rng), THRESHOLDS, rng)
    made = arrivals(records, FACTS)
    assert [a.at for a in made] == sorted(r.at - r.e2e_s for r in records)
    assert all(a.usable == (0, 1, 2) for a in made)


speeds = st.floats(0.001, 20.0, allow_nan=False)


@settings(max_examples=100, deadline=None)
@given(
    risks=st.tuples(st.floats(0, 1), st.floats(0, 1)),
    thresholds=st.tuples(st.floats(0, 1), st.floats(0, 1)),
    times=st.lists(st.tuples(speeds, speeds), min_size=3, max_size=3),
    target=st.one_of(st.none(), speeds),
    gives_way=st.sampled_from(["speed", "quality"]),
    prefer=st.sampled_from(["cheapest", "lowest_precision"]),
    live=st.sets(st.sampled_from([0, 1, 2]), min_size=1),
)
def test_the_replay_decides_as_the_adaptive_policy(
    risks: tuple[float, float],
    thresholds: tuple[float, float],
    times: list[tuple[float, float]],
    target: float | None,
    gives_way: str,
    prefer: str,
    live: set[int],
) -> None:
    scenario = Scenario("s", target, target, gives_way, prefer)  # type: ignore[arg-type]
    states = tuple(
        VariantState(v, p, r, k in live, Speed(times[k][0], 0.0, 0.0, times[k][1]))
        for k, (v, p, r) in enumerate(zip(FACTS.variants, FACTS.precisions, FACTS.ranks, strict=True))
    )
    limit = dict(zip(FACTS.lower, thresholds, strict=True))
    risk = dict(zip(FACTS.lower, risks, strict=True))
    decision = adaptive.decide(Inputs(RequestFacts(1, 2), risk, limit, states, scenario))
    bounds = limits(limit, FACTS)
    mine = (0.0, *risks)
    lowest = min((FACTS.ranks[k] for k in (1, 2) if mine[k] <= bounds[k]), default=FACTS.top)
    predicted = [(t, t + itl, t + itl) for t, itl in times]
    allowed = [FACTS.ranks[k] > lowest or mine[k] <= bounds[k] for k in range(3)]
    goal = math.inf if target is None else target
    arrival = Arrival(
        0.0, 1, 2, goal, goal, gives_way == "quality", prefer == "lowest_precision", tuple(sorted(live)), mine, True
    )
    assert FACTS.variants[pick(sorted(live), allowed, predicted, FACTS.ranks, arrival)] == decision.variant
