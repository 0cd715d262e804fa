"""What an off-policy estimator sees and gives back."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import NormalDist
from typing import NamedTuple


class Sample(NamedTuple):
    """One labelled answer."""

    action: int
    """Index of the variant that answered."""
    stratum: int
    """Bin of this variant's risk for the request."""
    seen: float
    """Probability that a request is of this stratum, goes to `action` and gets a label."""
    difference: float
    """Quality against full precision, in [-1, 1]."""
    weight: float
    fold: int
    """For cross-fitting."""
    risk: float
    """This variant's risk for the request."""


class Model(NamedTuple):
    """The outcome of one variant: level, slope over the risk, and each stratum's departure from that line."""

    centre: float
    """Risk at which the level holds."""
    mean: Sequence[float]
    """Of level, slope and departures."""
    spread: Sequence[Sequence[float]]
    """Their covariance."""
    place: Mapping[int, int]
    """By stratum, where its departure stands."""
    noise: float
    """Variance of one label around its stratum's mean, of the whole variant."""
    noises: Mapping[int, float]
    """The same by stratum that has labels; never below the whole's."""

    def value(self, stratum: int, risk: float) -> float:
        """Return the estimated difference at a risk of a stratum."""
        return self.mean[0] + self.mean[1] * (risk - self.centre) + self.mean[self.place[stratum]]


class Cell(NamedTuple):
    """Labelled answers of one variant, stratum and weight: what all candidates' estimates need of them."""

    stratum: int
    weight: float
    seen: float
    labels: int
    total: float
    """Sum of the differences."""
    squares: float
    residuals: float
    """Sum of what the outcome model, fitted without each label's fold, leaves of them."""
    residual_squares: float
    nonzero: int
    largest: float
    """Largest absolute difference."""


class Fitted(NamedTuple):
    """What the samples say, the same for all candidates: the outcome model by variant, and the labels by cell."""

    whole: Mapping[int, Model]
    cells: Mapping[int, Sequence[Cell]]
    """By variant."""


class Setting(NamedTuple):
    """One candidate to be valued."""

    labels: int
    """Labels in all."""
    mass: Mapping[tuple[int, int], float]
    """Share of all requests that the candidate sends to (variant, stratum); full precision's part is left out."""
    risk: Mapping[tuple[int, int], float]
    """Mean risk of the requests that the candidate sends to (variant, stratum)."""
    confidence: float
    fitted: Fitted
    """The outcome model of these samples (`outcome.prepare`): the same for all candidates."""
    traffic_variance: float = 0.0
    """Of the mean, because other traffic than the recorded will come."""


class Estimate(NamedTuple):
    """Mean difference from full precision over all requests, with its two-sided interval."""

    mean: float
    lower: float
    upper: float
    labels: int
    """Labelled answers that speak for it."""


Estimator = Callable[[Setting], Estimate]

_POISSON = 1.0
"""A lost answer that may have gone unseen: the standard error is never below this over the effective labels."""


def quantile(confidence: float, freedom: float) -> float:
    """Return Student's t quantile of a two-sided interval (Cornish-Fisher expansion, A&S 26.7.5); inf below 1 degree."""
    if freedom < 1.0:
        return math.inf
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    g1 = (z**3 + z) / 4
    g2 = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    g3 = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + g1 / freedom + g2 / freedom**2 + g3 / freedom**3


def interval(mean: float, error: float, confidence: float, freedom: float, labels: int) -> Estimate:
    """Return the estimate with `mean` and standard `error`, kept within [-1, 1]."""
    half = quantile(confidence, freedom) * error if error > 0.0 else 0.0
    return Estimate(mean, max(-1.0, mean - half), min(1.0, mean + half), labels)


def effective(weights: Sequence[tuple[float, int]]) -> float:
    """Return Kish's effective size of weighted observations, given as (weight, how many)."""
    total, squares = math.fsum(w * n for w, n in weights), math.fsum(w * w * n for w, n in weights)
    return total * total / squares if squares > 0.0 else 0.0


def unseen_loss(effective_labels: float, cells: Sequence[Cell]) -> float:
    """Return the least standard error of a mean: a loss that n labels did not show may still come once in n.

    Its size: three times the largest difference that was seen where differences are a matter of degree, else 1
    (an answer lost whole, where labels only say same or not).
    """
    size = 1.0
    if sum(c.nonzero for c in cells) * 2 > sum(c.labels for c in cells):
        size = min(1.0, 3.0 * max(c.largest for c in cells))
    return size * _POISSON / (effective_labels + 1.0)
