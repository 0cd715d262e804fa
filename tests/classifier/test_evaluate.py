from __future__ import annotations

import numpy as np
import pytest

from classifier.evaluate import auc, calibration_error, cpt, curve, figures, interval, random_figures

WEAK = np.array([1.0, 0, 1, 0, 0, 1, 1, 0, 1, 1])
STRONG = np.array([1.0, 1, 1, 1, 0, 1, 1, 1, 0, 1])


def test_the_curve_goes_from_nothing_to_everything() -> None:
    pgr = curve(np.arange(10.0), WEAK, STRONG)
    assert pgr[0] == 0
    assert pgr[-1] == pytest.approx(1)
    assert len(pgr) == 11


def test_by_hand() -> None:
    weak, strong = np.array([0.0, 1, 0, 1]), np.array([1.0, 1, 1, 1])
    found = figures(np.array([4.0, 3, 2, 1]), weak, strong, resamples=20)
    # PGR at 0, 1/4, ... 1: 0, 1/2, 1/2, 1, 1.
    assert found.apgr == pytest.approx(0.6)
    assert found.cpt50 == 25
    assert found.cpt80 == 75
    assert found.quality_area == pytest.approx(0.8)


def test_the_oracle_is_best_and_its_reverse_worst() -> None:
    oracle = figures(STRONG - WEAK, WEAK, STRONG).apgr
    assert oracle > random_figures(WEAK, STRONG).apgr > figures(WEAK - STRONG, WEAK, STRONG).apgr


def test_random_is_about_half() -> None:
    generator = np.random.default_rng(0)
    weak = (generator.random(2000) < 0.6).astype(float)
    strong = (generator.random(2000) < 0.9).astype(float)
    assert random_figures(weak, strong).apgr == pytest.approx(0.5, abs=0.03)


def test_no_gap_is_refused() -> None:
    with pytest.raises(ValueError, match="no better"):
        curve(np.zeros(3), np.ones(3), np.ones(3))


def test_cpt_of_the_first_share_that_reaches() -> None:
    assert cpt(np.array([0, 0.2, 0.6, 0.9, 1.0]), 0.5) == 50


def test_auc() -> None:
    assert auc(np.array([1.0, 2, 3, 4]), np.array([0.0, 0, 1, 1])) == 1
    assert auc(np.array([4.0, 3, 2, 1]), np.array([0.0, 0, 1, 1])) == 0
    assert auc(np.ones(4), np.array([0.0, 0, 1, 1])) == 0.5
    with pytest.raises(ValueError, match="one class"):
        auc(np.ones(3), np.ones(3))


def test_calibration_error() -> None:
    generator = np.random.default_rng(0)
    risk = generator.random(20_000)
    label = (generator.random(20_000) < risk).astype(float)
    assert calibration_error(risk, label) < 0.02
    assert calibration_error(risk, 1 - label) > 0.3


def test_the_interval_holds_the_mean() -> None:
    values = np.random.default_rng(1).normal(3, 1, 400)
    low, high = interval(lambda i: float(values[i].mean()), 400, 300, 0)
    assert low < 3 < high
    assert high - low < 0.3
