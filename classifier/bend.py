"""Calibration by a rising line of several pieces: between Platt's straight line and isotonic regression's steps.

`log odds(z) = intercept + sum_i slope_i * (length of z in piece i)`, slopes above 0, pieces between the quartiles of the
training scores. A normal prior holds neighbouring slopes together, so that few labels give Platt's line (Platt 1999) and many
bend it where scores mean something else at the low end than at the high one: a smooth maximum with a floor does. Isotonic
regression (Zadrozny and Elkan 2002) has no such prior, and foretold held-out labels worse on a thousand prompts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize  # type: ignore[import-untyped]

from classifier.evaluate import Array

_PIECES = 4
_LEAST_SLOPE = 0.05
"""Scores order requests even where labels are too few to show it: equal risks would go down together or not at all."""
_SLOPE_SPREAD = 3.0
"""Standard deviation of a slope's prior."""
_BEND_SPREAD = 1.0
"""That of the difference of two neighbouring slopes."""


@dataclass(frozen=True, slots=True)
class Bend:
    """A line through `heights` (log odds, 0 at z = 0) at `points`, above an intercept."""

    intercept: float
    points: Array
    heights: Array

    def probability(self, z: Array) -> Array:
        """Return P(worse) at each score."""
        return np.asarray(1 / (1 + np.exp(-(self.intercept + np.interp(z, self.points, self.heights)))))


def pieces(z: Array, clip: float) -> Array:
    """Return where the line may bend: the quartiles of `z`, between `-clip` and `clip`."""
    inner = np.quantile(z, np.linspace(0, 1, _PIECES + 1)[1:-1])
    # Narrow pieces would hold hardly a label.
    kept = [-clip]
    for point in inner:
        if kept[-1] + 0.1 < point < clip - 0.1:
            kept.append(float(point))
    return np.array([*kept, clip])


def fit_bend(z: Array, worse: Array, points: Array) -> Bend:
    """Return the most likely line with these points; `z` within them, `worse` 0 or 1. The mean of its risks is that of `worse`."""
    rows = _inside(z, points)
    stiff = np.diff(np.eye(rows.shape[1]), axis=0)

    def loss(theta: Array) -> tuple[float, Array]:
        logit = theta[0] + rows @ theta[1:]
        error = 1 / (1 + np.exp(-logit)) - worse
        bent = stiff @ theta[1:]
        value = (np.logaddexp(0, logit) - worse * logit).sum()
        value += ((theta[1:] / _SLOPE_SPREAD) ** 2).sum() / 2 + ((bent / _BEND_SPREAD) ** 2).sum() / 2
        prior = theta[1:] / _SLOPE_SPREAD**2 + stiff.T @ bent / _BEND_SPREAD**2
        return float(value), np.concatenate([[error.sum()], rows.T @ error + prior])

    start = np.zeros(rows.shape[1] + 1)
    start[0] = np.log((worse.sum() + 0.5) / (len(worse) - worse.sum() + 0.5))
    bounds = [(-20.0, 20.0), *[(_LEAST_SLOPE, None)] * rows.shape[1]]
    found = minimize(loss, start, jac=True, bounds=bounds, method="L-BFGS-B")
    return Bend(float(found.x[0]), points, _inside(points, points) @ found.x[1:])


def _inside(z: Array, points: Array) -> Array:
    """How far each `z` lies in each piece, counted from 0."""
    left, right = points[:-1], points[1:]
    return np.asarray(np.clip(z[:, None], left, right) - np.clip(0.0, left, right))
