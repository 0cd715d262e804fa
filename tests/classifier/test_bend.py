from __future__ import annotations

import numpy as np
import pytest

from classifier.bend import Bend, fit_bend, pieces
from classifier.evaluate import Array, calibration_error
from classifier.fit import fit_platt

CLIP = 2.5


def _drawn(seed: int, log_odds: Array) -> Array:
    return (np.random.default_rng(seed).random(len(log_odds)) < 1 / (1 + np.exp(-log_odds))).astype(np.float64)


def _scores(seed: int, size: int) -> Array:
    return np.clip(np.random.default_rng(seed).normal(size=size), -CLIP, CLIP)


def test_where_scores_say_nothing_below_and_much_above_the_line_bends() -> None:
    z, unseen = _scores(1, 4000), _scores(2, 20_000)
    truth: Array = np.maximum(z, 0.0) * 2.5 - 1.0
    worse, later = _drawn(3, truth), _drawn(4, np.maximum(unseen, 0.0) * 2.5 - 1.0)
    found = fit_bend(z, worse, pieces(z, CLIP))
    low, high = np.interp([-1.5, 1.5], found.points, found.heights)
    assert high - low == pytest.approx(3.75, abs=0.6)
    assert found.heights[1] - found.heights[0] < 0.5
    straight = fit_platt(z, worse, 0.0, 3.0)
    platt = 1 / (1 + np.exp(-(straight.intercept + straight.slope * unseen)))
    assert calibration_error(found.probability(unseen), later) < calibration_error(platt, later) / 2


def test_few_labels_give_nearly_platts_line() -> None:
    z = _scores(5, 60)
    worse = _drawn(6, z)
    found, straight = fit_bend(z, worse, pieces(z, CLIP)), fit_platt(z, worse, 0.0, 3.0)
    at = np.linspace(-1.5, 1.5, 7)
    platt = 1 / (1 + np.exp(-(straight.intercept + straight.slope * at)))
    assert np.abs(found.probability(at) - platt).max() < 0.1


def test_the_mean_risk_is_the_rate_and_a_higher_score_never_means_less() -> None:
    z = _scores(7, 500)
    # Scores that say the opposite of what happens: the line is flat, not falling.
    found = fit_bend(z, _drawn(8, -z), pieces(z, CLIP))
    assert found.probability(z).mean() == pytest.approx(_drawn(8, -z).mean(), abs=0.01)
    assert (np.diff(found.heights) >= 0).all()


@pytest.mark.parametrize("worse", [0.0, 1.0])
@pytest.mark.parametrize("z", [np.zeros(50), np.full(50, CLIP), np.linspace(-CLIP, CLIP, 50)])
def test_labels_all_alike_and_scores_all_alike_give_a_finite_line(z: Array, worse: float) -> None:
    found = fit_bend(z, np.full(50, worse), pieces(z, CLIP))
    risk = found.probability(np.array([-CLIP, 0.0, CLIP]))
    assert np.isfinite(risk).all()
    assert abs(risk[1] - worse) < 0.2 or not z.any()


def test_pieces_rise_from_end_to_end() -> None:
    for z in (np.zeros(9), _scores(9, 200), np.full(9, CLIP), np.full(9, -CLIP)):
        points = pieces(z, CLIP)
        assert (points[0], points[-1]) == (-CLIP, CLIP)
        assert (np.diff(points) >= 0.1 - 1e-9).all()


def test_a_line_is_straight_between_its_points_and_flat_beyond() -> None:
    line = Bend(0.0, np.array([-1.0, 1.0]), np.array([-2.0, 2.0]))
    assert line.probability(np.array([0.5, 9.0])) == pytest.approx(1 / (1 + np.exp([-1.0, -2.0])))
