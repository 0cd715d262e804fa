"""The outcome model: difference from full precision by variant, a line over the risk with smooth deviations around it.

A Gaussian process on bins of risk (Rasmussen and Williams, 2006, chapter 2; in small-area estimation: Fay and Herriot,
1979). The line pools all labels of a variant; a bin departs from it as far as its labels and its neighbours' say so. How
far bins depart at all is not known: the posterior averages over it. A variant without labels counts as its risk says, with
an uncertainty that no bound survives.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

from router.tuning.estimators.types import Cell, Fitted, Model, Sample

_PRIOR_LABELS = 4.0
_PRIOR_VARIANCE = 0.05
"""A variant's scatter of single labels counts as if so many labels of this variance had been seen as well."""
_RIDGE = 0.0625
"""One label a quarter away: with one bin no slope is to be known."""
_UNKNOWN_VARIANCE = 0.25
"""Of the line's level and slope before any label."""
_DEPARTURES = (0.003, 0.006, 0.012, 0.024, 0.048)
"""Standard deviations of bins around the line: each as likely as the others before any label."""
_REACH = 3.0
"""Bins at this distance still share exp(-1) of their departure."""

Matrix = list[list[float]]


def fit(samples: Sequence[Sample], risk: Mapping[tuple[int, int], float]) -> dict[int, Model]:
    """Return the outcome of each variant; `risk` is the mean risk of all requests in (variant, stratum)."""
    by_action: dict[int, list[Sample]] = {action: [] for action, _ in risk}
    for sample in samples:
        by_action.setdefault(sample.action, []).append(sample)
    return {action: _model(action, of_action, risk) for action, of_action in by_action.items()}


def prepare(samples: Sequence[Sample], risk: Mapping[tuple[int, int], float]) -> Fitted:
    """Return the model on all samples, and the labels by cell with what the model without their fold leaves of them."""
    folds = sorted({s.fold for s in samples})
    without = {f: fit([s for s in samples if s.fold != f], risk) for f in folds}
    groups: dict[tuple[int, int, float, float], list[tuple[float, float]]] = defaultdict(list)
    for s in samples:
        left = s.difference - without[s.fold][s.action].value(s.stratum, s.risk)
        groups[s.action, s.stratum, s.weight, s.seen].append((s.difference, left))
    cells: dict[int, list[Cell]] = defaultdict(list)
    for (action, stratum, weight, seen), rows in groups.items():
        cells[action].append(
            Cell(
                stratum,
                weight,
                seen,
                len(rows),
                math.fsum(d for d, _ in rows),
                math.fsum(d * d for d, _ in rows),
                math.fsum(r for _, r in rows),
                math.fsum(r * r for _, r in rows),
                sum(d != 0.0 for d, _ in rows),
                max(abs(d) for d, _ in rows),
            )
        )
    return Fitted(fit(samples, risk), cells)


def _model(action: int, samples: Sequence[Sample], risk: Mapping[tuple[int, int], float]) -> Model:
    groups: dict[int, list[Sample]] = defaultdict(list)
    for sample in samples:
        groups[sample.stratum].append(sample)
    strata = sorted({stratum for a, stratum in risk if a == action} | set(groups))
    risks = [risk[action, b] for b in strata if (action, b) in risk] or [s.risk for s in samples]
    centre = math.fsum(risks) / len(risks)
    seen, noises, noise = _bins(groups)
    # Rows: what each labelled bin's mean is made of (level, slope, departures).
    design = [
        [1.0, mean_risk - centre, *(float(b == stratum) for b in strata)] for stratum, (_, _, mean_risk) in seen.items()
    ]
    found = [mean for mean, _, _ in seen.values()]
    chances = [noises[stratum] / labels for stratum, (_, labels, _) in seen.items()]
    start = [-centre, -1.0, *(0.0 for _ in strata)]
    gaps = [y - math.fsum(z * t for z, t in zip(row, start, strict=True)) for y, row in zip(found, design, strict=True)]
    posteriors = [_posterior(_prior(strata, departure), design, gaps, chances) for departure in _DEPARTURES]
    most = max(likely for likely, _, _ in posteriors)
    weights = [math.exp(likely - most) for likely, _, _ in posteriors]
    total = math.fsum(weights)
    size = len(start)
    mean = [math.fsum(w * m[i] for w, (_, m, _) in zip(weights, posteriors, strict=True)) / total for i in range(size)]
    spread = [
        [
            math.fsum(
                w * (c[i][j] + (m[i] - mean[i]) * (m[j] - mean[j]))
                for w, (_, m, c) in zip(weights, posteriors, strict=True)
            )
            / total
            for j in range(size)
        ]
        for i in range(size)
    ]
    place = {stratum: 2 + i for i, stratum in enumerate(strata)}
    return Model(centre, [s + m for s, m in zip(start, mean, strict=True)], spread, place, noise, noises)


def _bins(
    groups: Mapping[int, Sequence[Sample]],
) -> tuple[dict[int, tuple[float, float, float]], dict[int, float], float]:
    """Return by stratum: (mean, effective labels, mean risk); variance of one label; and that of the whole variant."""
    seen: dict[int, tuple[float, float, float]] = {}
    squares: dict[int, float] = {}
    for stratum, group in groups.items():
        total = math.fsum(s.weight for s in group)
        mean = math.fsum(s.weight * s.difference for s in group) / total
        labels = total * total / math.fsum(s.weight * s.weight for s in group)
        seen[stratum] = mean, labels, math.fsum(s.weight * s.risk for s in group) / total
        # Scaled so that weights of any unit give a variance of single labels.
        squares[stratum] = math.fsum(s.weight * (s.difference - mean) ** 2 for s in group) / total * labels
    within = math.fsum(squares.values())
    freedom = math.fsum(max(0.0, labels - 1.0) for _, labels, _ in seen.values())
    prior = min(_PRIOR_VARIANCE, within / freedom + 0.01 if freedom else 1.0)
    noise = (within + _PRIOR_LABELS * prior) / (freedom + _PRIOR_LABELS)
    if not seen:
        return seen, {}, noise
    # Where answers are lost whole, losses are rarer and scatter less at low risk: a line over the risk, so that a bin
    # that by chance shows a loss does not count less for it; and no bin counts as surer than all.
    centre = math.fsum(labels * risk for _, labels, risk in seen.values()) / math.fsum(n for _, n, _ in seen.values())
    joint = math.fsum(
        (squares[b] - max(0.0, labels - 1.0) * noise) * (risk - centre) for b, (_, labels, risk) in seen.items()
    )
    wide = math.fsum(labels * (risk - centre) ** 2 for _, labels, risk in seen.values()) + _RIDGE
    slope = max(0.0, joint / wide)
    return seen, {b: noise + max(0.0, slope * (risk - centre)) for b, (_, _, risk) in seen.items()}, noise


def _prior(strata: Sequence[int], departure: float) -> Matrix:
    size = len(strata) + 2
    out = [[0.0] * size for _ in range(size)]
    out[0][0] = out[1][1] = _UNKNOWN_VARIANCE
    for i, a in enumerate(strata, 2):
        for j, b in enumerate(strata, 2):
            out[i][j] = departure * departure * math.exp(-abs(a - b) / _REACH)
    return out


def _posterior(
    prior: Matrix, design: Matrix, gaps: Sequence[float], chances: Sequence[float]
) -> tuple[float, list[float], Matrix]:
    """Condition on bins' means one after the other; return log likelihood, mean and covariance (Kalman's update)."""
    likely = 0.0
    mean = [0.0] * len(prior)
    spread = [list(row) for row in prior]
    for row, gap, chance in zip(design, gaps, chances, strict=True):
        used = [i for i, z in enumerate(row) if z]
        shared = [math.fsum(of[i] * row[i] for i in used) for of in spread]
        variance = chance + math.fsum(shared[i] * row[i] for i in used)
        left = gap - math.fsum(mean[i] * row[i] for i in used)
        likely -= 0.5 * (math.log(variance) + left * left / variance)
        mean = [m + s * left / variance for m, s in zip(mean, shared, strict=True)]
        spread = [
            [c - s * o / variance for c, o in zip(of, shared, strict=True)]
            for of, s in zip(spread, shared, strict=True)
        ]
    return likely, mean, spread
