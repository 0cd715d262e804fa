"""Off-policy estimators on planted differences: right on average, honest about what nobody saw."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.tuning.estimators import ESTIMATORS, Sample, Setting
from router.tuning.estimators.outcome import prepare
from router.tuning.estimators.types import quantile

STRATA = 8
RISK = {(1, b): (b + 0.5) / STRATA for b in range(STRATA)}
SHAPES: dict[str, Callable[[float], float]] = {
    "line": lambda r: -0.1 * r,
    "step": lambda r: -0.04 * (r > 0.4),
    "late": lambda r: -0.15 * max(0.0, r - 0.3),
    "none": lambda r: 0.0,
}


def truth(stratum: int, shape: str = "line") -> float:
    return SHAPES[shape](RISK[1, stratum])


def setting(
    rng: random.Random,
    n: int,
    seen: dict[int, float],
    mass: dict[int, float],
    shape: str = "line",
    *,
    whole: bool = False,
) -> Setting:
    strata = rng.choices(list(seen), [seen[b] for b in seen], k=n)

    def label(b: int) -> float:
        mean = truth(b, shape)
        return -float(rng.random() < -mean) if whole else mean + rng.uniform(-0.1, 0.1)

    samples = [Sample(1, b, seen[b], label(b), 1.0, i % 5, RISK[1, b]) for i, b in enumerate(strata)]
    return Setting(len(samples), {(1, b): m for b, m in mass.items()}, RISK, 0.95, prepare(samples, RISK))


LOGGED = {0: 0.2, 1: 0.15, 2: 0.1, 3: 0.05, 4: 0.03, 5: 0.02, 6: 0.02, 7: 0.02}
"""Logged mostly at low risk."""
HIGHER = {1: 0.1, 2: 0.1, 3: 0.1, 4: 0.1, 5: 0.1}
"""A candidate that goes to high risk."""


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("shape", sorted(SHAPES))
def test_the_interval_holds_the_truth_about_as_often_as_it_says(shape: str, whole: bool) -> None:
    real = sum(m * truth(b, shape) for b, m in HIGHER.items())
    rng = random.Random(3)
    draws = [setting(rng, 400, LOGGED, HIGHER, shape, whole=whole) for _ in range(40)]
    widths = {}
    for name, estimator in ESTIMATORS.items():
        found = [estimator(draw) for draw in draws]
        # A step that few of many labels saw, all or nothing, is the hardest.
        assert sum(e.lower <= real <= e.upper for e in found) >= (34 if whole else 36), name
        # The side that bounds quality.
        assert sum(e.lower <= real for e in found) >= (34 if whole else 37), name
        assert sum(e.mean for e in found) / 40 == pytest.approx(real, abs=0.012 if whole else 0.003), name
        # And it is worth something: far narrower than not to know.
        assert all(e.upper - e.lower < (0.25 if whole else 0.1) for e in found), name
        widths[name] = sum(e.upper - e.lower for e in found)
    # What pooling is for.
    assert widths["pooled"] < 0.8 * min(widths["dr"], widths["ips"])


def test_many_labels_outvote_the_line() -> None:
    # Lost from the middle on: a line through it would promise too much just above it.
    rng = random.Random(4)
    mass = {4: 0.5}
    found = ESTIMATORS["pooled"](setting(rng, 20_000, dict.fromkeys(range(STRATA), 0.1), mass, "step"))
    assert found.mean == pytest.approx(-0.02, abs=0.0015)
    assert found.upper - found.lower < 0.006


def test_other_traffic_to_come_widens_every_interval() -> None:
    one = setting(random.Random(1), 300, LOGGED, HIGHER)
    for estimator in ESTIMATORS.values():
        sure, unsure = estimator(one), estimator(one._replace(traffic_variance=0.01**2))
        assert unsure.mean == sure.mean
        half = (sure.upper - sure.lower) / 2
        assert (unsure.upper - unsure.lower) / 2 == pytest.approx(math.hypot(half, 0.01 * 1.97), rel=0.02)


samples = st.builds(
    Sample,
    action=st.sampled_from((1, 2)),
    stratum=st.integers(0, 3),
    seen=st.floats(1e-4, 0.5),
    difference=st.sampled_from((-1.0, -0.3, 0.0, 0.0, 0.2)),
    weight=st.floats(1e-3, 50.0),
    fold=st.integers(0, 4),
    risk=st.floats(0.0, 1.0),
)


@settings(max_examples=40)
@given(
    st.lists(samples, max_size=40),
    st.dictionaries(st.tuples(st.sampled_from((1, 2)), st.integers(0, 3)), st.floats(0.0, 0.125)),
)
def test_whatever_was_seen_an_estimate_lies_in_its_interval(
    seen: list[Sample], mass: dict[tuple[int, int], float]
) -> None:
    risk = {(action, stratum): stratum / 4 for action in (1, 2) for stratum in range(4)}
    one = Setting(len(seen), mass, risk, 0.95, prepare(seen, risk))
    for estimator in ESTIMATORS.values():
        found = estimator(one)
        assert -1.0 <= found.lower <= found.upper <= 1.0
        assert found.lower <= min(1.0, max(-1.0, found.mean)) <= found.upper
        # Where a variant is used and hardly labelled nothing is promised.
        used = sum(m for (action, _), m in mass.items() if action == 2)
        if used > 0.05 and not any(s.action == 2 for s in seen):
            assert found.lower < -0.02


def test_full_precision_alone_is_exactly_as_good() -> None:
    one = setting(random.Random(1), 50, {0: 0.5, 1: 0.5}, {})
    assert all((e.mean, e.lower, e.upper) == (0.0, 0.0, 0.0) for e in (f(one) for f in ESTIMATORS.values()))


def one_sample() -> list[Sample]:
    return [Sample(1, 0, 0.5, 0.0, 1.0, i % 5, RISK[1, 0]) for i in range(50)]


@pytest.mark.parametrize("name", sorted(ESTIMATORS))
def test_a_variant_that_nobody_labelled_is_not_vouched_for(name: str) -> None:
    one = setting(random.Random(1), 50, {0: 0.5, 1: 0.5}, {0: 0.2})
    risk = {**RISK, (2, 0): 0.1}
    unknown = one._replace(mass={(2, 0): 0.5}, risk=risk, fitted=prepare(one_sample(), risk))
    assert ESTIMATORS[name](unknown).lower < -0.1


@pytest.mark.parametrize("name", sorted(ESTIMATORS))
def test_labels_that_all_say_same_do_not_prove_there_is_no_loss(name: str) -> None:
    samples = [Sample(1, i % STRATA, 1 / STRATA, 0.0, 1.0, i % 5, RISK[1, i % STRATA]) for i in range(100)]
    one = Setting(len(samples), {(1, b): 1 / STRATA for b in range(STRATA)}, RISK, 0.95, prepare(samples, RISK))
    # A hundred without a loss still allow one or two in a hundred.
    assert -0.06 < ESTIMATORS[name](one).lower < -0.01


def test_the_weights_turn_what_was_seen_into_what_would_be() -> None:
    # Without weights the mean would be that of the low risk where nearly all labels are.
    rng = random.Random(5)
    one = setting(rng, 2000, {0: 0.45, 7: 0.05}, {0: 0.25, 7: 0.25})
    for name in ("dr", "ips"):
        assert ESTIMATORS[name](one).mean == pytest.approx(0.25 * truth(0) + 0.25 * truth(7), abs=0.004)


def test_students_quantile_is_that_of_the_tables() -> None:
    assert quantile(0.95, 10) == pytest.approx(2.228, abs=0.002)
    assert quantile(0.95, 1e9) == pytest.approx(1.960, abs=0.001)
    assert quantile(0.95, 0.5) == math.inf
