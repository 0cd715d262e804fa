"""Fitting of models and of the calibration; needs the extra `train`. What comes back is plain parameters for an artefact."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from sklearn.linear_model import Ridge

from classifier.evaluate import Array
from classifier.features import Features

_RIDGE = 30.0
_TAIL = 0.005


@dataclass(frozen=True, slots=True)
class Examples:
    """Training rows: features, and what is to be predicted (the gain, centred within its source)."""

    features: Sequence[Features]
    target: Array

    def matrix(self) -> Array:
        """Return the features as rows."""
        return matrix(self.features)


def matrix(features: Sequence[Features]) -> Array:
    """Return the vectors as rows."""
    return np.array([item.vector for item in features], dtype=np.float64)


def ranges(rows: Array) -> tuple[Array, Array]:
    """Return each feature's range without its outermost half percents."""
    return np.quantile(rows, _TAIL, axis=0), np.quantile(rows, 1 - _TAIL, axis=0)


def fit_linear(examples: Examples, seed: int = 0) -> dict[str, object]:
    """Ridge regression on standardised features, clipped to their range."""
    rows = examples.matrix()
    low, high = ranges(rows)
    clipped = np.clip(rows, low, high)
    centre = clipped.mean(axis=0)
    scale = clipped.std(axis=0)
    scale[scale < 1e-9] = np.inf
    model = Ridge(alpha=_RIDGE).fit((clipped - centre) / scale, examples.target)
    return {
        "intercept": float(model.intercept_),
        "weights": rounded(model.coef_ / scale),
        "centre": rounded(centre),
        "low": rounded(low),
        "high": rounded(high),
    }


def fit_nothing(examples: Examples, seed: int = 0) -> dict[str, object]:
    """Return no parameters: length, constant and random learn nothing."""
    return {}


FITTERS: Mapping[str, Callable[[Examples, int], dict[str, object]]] = {
    "linear": fit_linear,
    "length": fit_nothing,
    "constant": fit_nothing,
    "random": fit_nothing,
}
"""Kind to the function that fits its parameters."""


@dataclass(frozen=True, slots=True)
class Platt:
    """`P(loss | z) = sigmoid(intercept + slope * z)` and the covariance of both."""

    intercept: float
    slope: float
    covariance: tuple[float, float, float]


def fit_platt(z: Array, loss: Array, prior_mean: float, prior_sd: float, floor: float = 0.0) -> Platt:
    """Return the most likely intercept and slope, with a normal prior on the slope, which is not let under `floor`.

    With few losses the data say little about the slope; the prior says what is believed without them, and the covariance
    (Laplace) what is still unknown with both.
    """
    rate = (loss.sum() + 0.5) / (len(loss) + 1)
    theta = np.array([np.log(rate / (1 - rate)), prior_mean])
    rows = np.stack([np.ones_like(z), z], axis=1)
    precision = np.diag([1e-3, 1 / prior_sd**2])
    centre = np.array([0.0, prior_mean])
    hessian = precision
    for _ in range(50):
        p = 1 / (1 + np.exp(-rows @ theta))
        gradient = rows.T @ (loss - p) - precision @ (theta - centre)
        hessian = rows.T @ (rows * (p * (1 - p))[:, None]) + precision
        step = np.linalg.solve(hessian, gradient)
        theta = theta + step
        if float(np.abs(step).max()) < 1e-9:
            break
    covariance = np.linalg.inv(hessian)
    slope = max(float(theta[1]), floor)
    return Platt(
        intercept=intercept_for(float(loss.mean()), slope * z) if slope != theta[1] else float(theta[0]),
        slope=slope,
        covariance=(float(covariance[0, 0]), float(covariance[0, 1]), float(covariance[1, 1])),
    )


def intercept_for(rate: float, moved: Array) -> float:
    """Return the intercept with which the mean of `sigmoid(intercept + moved)` is `rate`, by bisection."""
    low, high = -20.0, 20.0
    for _ in range(80):
        middle = (low + high) / 2
        if float((1 / (1 + np.exp(-(middle + moved)))).mean()) < rate:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def rounded(values: Array) -> list[float]:
    """Return numbers of seven digits: artefacts stay small, scores don't change."""
    return [float(f"{value:.7g}") for value in values]
