"""Off-policy estimators on planted differences: right on average, honest about what nobody saw."""

from __future__ import annotations

import math
import random

import pytest

from router.tuning.estimators import ESTIMATORS, Sample, Setting
from router.tuning.estimators.outcome import prepare
from router.tuning.estimators.types import quantile

RISK = {(1, b): (b + 0.5) / 5 for b in range(5)}


def truth(stratum: int) -> float:
    return -0.1 * RISK[1, stratum]


def setting(rng: random.Random, n: int, seen: dict[int, float], mass: dict[int, float]) -> Setting:
    strata = rng.choices(list(seen), [seen[b] for b in seen], k=n)
    samples = [Sample(1, b, seen[b], truth(b) + rng.uniform(-0.1, 0.1), 1.0, i % 5) for i, b in enumerate(strata)]
    return Setting(len(samples), {(1, b): m for b, m in mass.items()}, RISK, 0.95, prepare(samples, RISK))


@pytest.mark.parametrize("name", sorted(ESTIMATORS))
def test_the_interval_holds_the_truth_about_as_often_as_it_says(name: str) -> None:
    # Logged mostly at low risk; the candidate goes to high risk.
    seen = {0: 0.2, 1: 0.15, 2: 0.05, 3: 0.03, 4: 0.02}
    mass = {2: 0.2, 3: 0.2, 4: 0.2}
    real = sum(m * truth(b) for b, m in mass.items())
    rng = random.Random(3)
    found = [ESTIMATORS[name](setting(rng, 400, seen, mass)) for _ in range(100)]
    assert sum(e.lower <= real <= e.upper for e in found) >= 90
    assert sum(e.mean for e in found) / 100 == pytest.approx(real, abs=0.003)
    # And it is worth something: far narrower than not to know.
    assert all(e.upper - e.lower < 0.1 for e in found)


def test_full_precision_alone_is_exactly_as_good() -> None:
    one = setting(random.Random(1), 50, {0: 0.5, 1: 0.5}, {})
    assert all((e.mean, e.lower, e.upper) == (0.0, 0.0, 0.0) for e in (f(one) for f in ESTIMATORS.values()))


@pytest.mark.parametrize("name", sorted(ESTIMATORS))
def test_a_variant_that_nobody_labelled_is_not_vouched_for(name: str) -> None:
    one = setting(random.Random(1), 50, {0: 0.5, 1: 0.5}, {0: 0.2})
    unknown = one._replace(mass={(2, 0): 0.5}, risk={**RISK, (2, 0): 0.1})
    assert ESTIMATORS[name](unknown).lower < -0.1


@pytest.mark.parametrize("name", sorted(ESTIMATORS))
def test_labels_that_all_say_same_do_not_prove_there_is_no_loss(name: str) -> None:
    samples = [Sample(1, i % 5, 0.2, 0.0, 1.0, i % 5) for i in range(100)]
    one = Setting(len(samples), {(1, b): 0.2 for b in range(5)}, RISK, 0.95, prepare(samples, RISK))
    # A hundred without a loss still allow one or two in a hundred.
    assert -0.06 < ESTIMATORS[name](one).lower < -0.01


def test_the_weights_turn_what_was_seen_into_what_would_be() -> None:
    # Without weights the mean would be that of the low risk where nearly all labels are.
    rng = random.Random(5)
    one = setting(rng, 2000, {0: 0.45, 4: 0.05}, {0: 0.25, 4: 0.25})
    assert ESTIMATORS["ips"](one).mean == pytest.approx(0.25 * truth(0) + 0.25 * truth(4), abs=0.004)


def test_students_quantile_is_that_of_the_tables() -> None:
    assert quantile(0.95, 10) == pytest.approx(2.228, abs=0.002)
    assert quantile(0.95, 1e9) == pytest.approx(1.960, abs=0.001)
    assert quantile(0.95, 0.5) == math.inf
