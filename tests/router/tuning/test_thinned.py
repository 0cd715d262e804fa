"""Events over their rate are recorded by chance: what a job may still say of loads, and that it says when it may not."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.tuning.world import CURVES, FACTS, World, record, traffic
from router.config.loop import TuningConfig
from router.tuning.analysis import Judge, Quality, analyse, value
from router.tuning.candidates import Scale
from router.tuning.choose import Candidate
from router.tuning.estimators import DECIDES
from router.tuning.evidence import gather
from router.tuning.guard import watch
from router.tuning.load_model import Thinned, fit_curves, held_out_error, unknown_speeds
from router.tuning.records import Record
from router.tuning.replay import Arrival, thickened

WORLD = World(explore=0.1, shadow=0.8)
THRESHOLDS = {"int8": 0.22, "int4": 0.2}
KEPT = 0.25
SETTINGS = TuningConfig()


def recorded(seed: int, count: int = 3000) -> list[Record]:
    rng = random.Random(seed)
    return sorted(record(WORLD, traffic(WORLD, count, rng), THRESHOLDS, rng), key=lambda r: r.at)


def thinned(records: list[Record], over: Callable[[float], bool], seed: int = 0) -> list[Record]:
    """What is left where only a quarter of the requests that end at such times is recorded."""
    rng = random.Random(seed)
    found = []
    for one in records:
        if not over(one.at):
            found.append(one)
        elif rng.random() < KEPT:
            found.append(one._replace(weight=1 / KEPT))
    return found


def at_the_peak(at: float) -> bool:
    """The rate swings in 120 s: half of the time it is above the mean."""
    return math.sin(2 * math.pi * at / 120.0) > 0.0


def test_speeds_come_from_times_of_which_all_is_recorded() -> None:
    some = thinned(recorded(1), at_the_peak)
    assert 300 < sum(r.weight > 1.0 for r in some) < 600
    found = fit_curves(some, FACTS.variants)
    # Those who take the few recorded ones for all see the same time per token at a fraction of the load.
    fooled = fit_curves([r._replace(weight=1.0) for r in some], FACTS.variants)
    for variant, curve in CURVES.items():
        running = found[variant].most_seen * 0.7
        real = curve.itl_base + curve.itl_per_running * running
        assert found[variant].itl_base + found[variant].itl_per_running * running == pytest.approx(real, rel=0.12)
    off = [abs(fooled[v].itl_base / c.itl_base - 1.0) for v, c in CURVES.items()]
    good = [abs(found[v].itl_base / c.itl_base - 1.0) for v, c in CURVES.items()]
    assert max(off) > 2 * max(good)
    errors = held_out_error(some, FACTS.variants)
    assert errors is not None
    assert errors["e2e"] < 0.1


def present(records: list[Record]) -> Candidate:
    """What a job expects of the thresholds as they are."""
    evidence = gather(records, FACTS.reference, 0.2)
    quality = Quality(records, evidence, FACTS, 0.95)
    curves = fit_curves(records, FACTS.variants)
    scale = Scale(quality.requests, FACTS)
    return Judge(quality, 4000, [curves[v] for v in FACTS.variants], FACTS, scale, THRESHOLDS).candidate(THRESHOLDS)


def test_goodput_is_that_of_all_requests_not_of_the_recorded() -> None:
    whole = recorded(2)
    some = thinned(whole, at_the_peak)
    told, true = present(some), present(whole)
    assert told.goodput == pytest.approx(true.goodput, rel=0.1)
    assert told.attainment == pytest.approx(true.attainment, abs=0.06)
    assert told.quality["ips"].mean == pytest.approx(true.quality["ips"].mean, abs=0.002)
    fooled = present([r._replace(weight=1.0) for r in some])
    assert fooled.goodput < 0.8 * true.goodput


def test_a_job_that_never_saw_a_whole_load_refuses_and_says_what_helps() -> None:
    some = thinned(recorded(3), lambda _: True)
    verdict = analyse(some, THRESHOLDS, FACTS, SETTINGS)
    assert verdict.choice is None
    assert "raise events.max_per_s" in verdict.reason
    assert f"{len(some)} of the newest {len(some)}" in verdict.reason
    estimates, _ = value(some, THRESHOLDS, FACTS, SETTINGS, 0.95)
    assert (estimates[DECIDES].lower, estimates[DECIDES].upper) == (-1.0, 1.0)
    assert unknown_speeds(some, FACTS.variants, {}) == list(FACTS.variants)
    # Nothing is blamed on sampling where there was none.
    assert unknown_speeds(recorded(3, 300), FACTS.variants, {}) == []


def test_the_guard_takes_no_speed_from_an_unknown_load() -> None:
    curves = fit_curves(recorded(4), FACTS.variants)
    slow = [r._replace(e2e_s=3 * r.e2e_s, at=r.at + 2 * r.e2e_s) for r in recorded(5, 1500)]
    assert {a.kind for a in watch(slow, FACTS, SETTINGS, {}, curves)} == {"speed"}
    assert watch([r._replace(weight=2.0) for r in slow], FACTS, SETTINGS, {}, curves) == []


def test_a_request_is_touched_by_any_time_that_it_ran_in() -> None:
    def ran(start: float, end: float, weight: float = 1.0) -> Record:
        return recorded_one._replace(at=end, e2e_s=end - start, weight=weight)

    recorded_one = recorded(6, 5)[0]
    times = Thinned([ran(10, 20, 2.0), ran(12, 14, 2.0), ran(30, 31, 2.0)])
    for start, end, touched in ((0, 9, False), (0, 11, True), (16, 17, True), (21, 29, False), (0, 40, True)):
        assert times.touches(ran(start, end)) == touched


@given(
    st.lists(st.tuples(st.floats(0.01, 5.0), st.floats(1.0, 20.0)), min_size=1, max_size=60),
    st.integers(1, 400),
)
def test_each_recorded_arrival_comes_with_as_many_as_it_stands_for(rows: list[tuple[float, float]], most: int) -> None:
    requests, now = [], 0.0
    for i, (gap, _) in enumerate(rows):
        now += gap
        requests.append(Arrival(now, i + 1, 1, math.inf, math.inf, False, False, (0,), (0.0,), False))
    weights = [weight for _, weight in rows]
    found, places = thickened(requests, weights, most)
    kept = len(places)
    assert [found[i] for i in places] == requests[-kept:]
    assert [r.at for r in found] == sorted(r.at for r in found)
    total = sum(weights[-kept:])
    assert total - 1.0 <= len(found) + 1e-6
    assert len(found) <= total + 1e-6
    assert len(found) <= most or kept == 1
    # As many as there is room for: the one before would be too many.
    if kept < len(rows) and kept > 1:
        assert total + weights[-kept - 1] > most
    if all(weight == 1.0 for weight in weights):
        assert found == requests[-min(most, len(rows)) :]
