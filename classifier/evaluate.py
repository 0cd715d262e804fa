"""How good a router of scores is: RouteLLM's measures, calibration, and bootstrap intervals.

Definitions (RouteLLM, arXiv 2406.18665): the strong model takes the share `a` of prompts with the highest scores;
`PGR(a) = (quality(a) - weak) / (strong - weak)`; APGR is its mean over `a` in [0, 1]; CPT(x) is the least `a`, in percent,
with `PGR >= x`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Figures:
    """A router's figures on one benchmark."""

    apgr: float
    cpt50: float
    """Percent."""
    cpt80: float
    """Percent."""
    quality_area: float
    """Area under the deferral curve: mean quality over all shares."""
    apgr_low: float
    apgr_high: float
    """95% bootstrap interval of APGR, over prompts."""
    cpt50_low: float
    cpt50_high: float
    cpt80_low: float
    cpt80_high: float


def curve(score: Array, weak: Array, strong: Array) -> Array:
    """Return PGR at the shares 0, 1/n, ..., 1. Raises `ValueError` when the strong model is no better than the weak one."""
    gap = float((strong - weak).sum())
    if gap <= 0:
        raise ValueError("the strong model is no better than the weak one here: PGR is not defined")
    order = np.argsort(-score, kind="stable")
    return np.concatenate([[0.0], np.cumsum((strong - weak)[order])]) / gap


def cpt(pgr: Array, level: float) -> float:
    """Return the least share, in percent, that reaches this PGR."""
    return 100.0 * float(np.argmax(pgr >= level)) / (len(pgr) - 1)


def figures(score: Array, weak: Array, strong: Array, *, resamples: int = 500, seed: int = 0) -> Figures:
    """Return a router's figures, with a bootstrap over prompts."""
    pgr = curve(score, weak, strong)
    generator = np.random.default_rng(seed)
    drawn = []
    for _ in range(resamples):
        i = generator.integers(0, len(score), len(score))
        try:
            again = curve(score[i], weak[i], strong[i])
        except ValueError:
            continue
        drawn.append((float(again.mean()), cpt(again, 0.5), cpt(again, 0.8)))
    low, high = np.quantile(drawn, (0.025, 0.975), axis=0) if drawn else np.full((2, 3), np.nan)
    return _figures((pgr.mean(), cpt(pgr, 0.5), cpt(pgr, 0.8)), low, high, weak, strong)


def random_figures(weak: Array, strong: Array, *, draws: int = 50, seed: int = 0) -> Figures:
    """Return the mean figures of random scores; the interval is that of the draws."""
    generator = np.random.default_rng(seed)
    curves = [curve(generator.random(len(weak)), weak, strong) for _ in range(draws)]
    drawn = np.array([(pgr.mean(), cpt(pgr, 0.5), cpt(pgr, 0.8)) for pgr in curves])
    low, high = np.quantile(drawn, (0.025, 0.975), axis=0)
    return _figures(drawn.mean(axis=0), low, high, weak, strong)


def _figures(middle: Iterable[float], low: Array, high: Array, weak: Array, strong: Array) -> Figures:
    """Return APGR, CPT(50%) and CPT(80%) as `middle` has them, with their intervals from `low` to `high`."""
    apgr, cpt50, cpt80 = middle
    return Figures(
        apgr=float(apgr),
        cpt50=float(cpt50),
        cpt80=float(cpt80),
        quality_area=float(weak.mean() + apgr * (strong - weak).mean()),
        apgr_low=float(low[0]),
        apgr_high=float(high[0]),
        cpt50_low=float(low[1]),
        cpt50_high=float(high[1]),
        cpt80_low=float(low[2]),
        cpt80_high=float(high[2]),
    )


def interval(
    statistic: Callable[[NDArray[np.intp]], float], size: int, resamples: int, seed: int
) -> tuple[float, float]:
    """Return the 95% percentile bootstrap interval of a statistic of row indices; undefined resamples are left out."""
    generator = np.random.default_rng(seed)
    values = []
    for _ in range(resamples):
        try:
            values.append(statistic(generator.integers(0, size, size)))
        except ValueError:
            continue
    if not values:
        return float("nan"), float("nan")
    return float(np.quantile(values, 0.025)), float(np.quantile(values, 0.975))


def auc(score: Array, label: Array) -> float:
    """Return the area under the ROC curve, ties counted half. Raises `ValueError` when one class is missing."""
    positive, negative = score[label > 0.5], score[label <= 0.5]
    if not len(positive) or not len(negative):
        raise ValueError("one class is missing: the area is not defined")
    ordered = np.sort(negative)
    below = np.searchsorted(ordered, positive, "left")
    upto = np.searchsorted(ordered, positive, "right")
    return float((below + upto).mean() / 2 / len(negative))


def calibration_error(risk: Array, label: Array, bins: int = 10) -> float:
    """Return the expected calibration error over bins of equal counts."""
    parts: Sequence[NDArray[np.intp]] = np.array_split(np.argsort(risk, kind="stable"), min(bins, len(risk)))
    return float(sum(abs(risk[part].mean() - label[part].mean()) * len(part) for part in parts) / len(risk))
