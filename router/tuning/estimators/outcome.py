"""The outcome model: mean difference from full precision by variant and bin of risk.

Small bins borrow from a line over the risk (an empirical-Bayes estimate as of Fay and Herriot, 1979): each bin's mean
is mixed with the line by how far bins scatter around it. A variant without any label counts as its risk says, with an
uncertainty that no bound survives.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

from router.tuning.estimators.types import Cell, Fitted, Line, Sample

_PRIOR_LABELS = 4.0
_PRIOR_VARIANCE = 0.05
"""A variant's scatter of single labels counts as if so many labels of this variance had been seen as well."""
_UNKNOWN_VARIANCE = 0.25
_LEAST_SCATTER = 1e-5


def fit(samples: Sequence[Sample], risk: Mapping[tuple[int, int], float]) -> dict[int, Line]:
    """Return the outcome of each variant that has labels."""
    by_action: dict[int, list[Sample]] = defaultdict(list)
    for sample in samples:
        by_action[sample.action].append(sample)
    return {action: _line(action, of_action, risk) for action, of_action in by_action.items()}


def prepare(samples: Sequence[Sample], risk: Mapping[tuple[int, int], float]) -> Fitted:
    """Return the model on all samples, and the labels by cell with what the model without their fold leaves of them."""
    folds = sorted({s.fold for s in samples})
    without = {f: fit([s for s in samples if s.fold != f], risk) for f in folds}
    groups: dict[tuple[int, int, float, float], list[tuple[float, float]]] = defaultdict(list)
    for s in samples:
        model = without[s.fold].get(s.action) or unknown(s.action, risk)
        value = model.value(s.stratum, risk.get((s.action, s.stratum), model.centre))
        groups[s.action, s.stratum, s.weight, s.seen].append((s.difference, s.difference - value))
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


def unknown(action: int, risk: Mapping[tuple[int, int], float]) -> Line:
    """Return the outcome of a variant without labels."""
    risks = [r for (a, _), r in risk.items() if a == action]
    centre = math.fsum(risks) / len(risks) if risks else 0.5
    return Line(centre, -centre, -1.0, _UNKNOWN_VARIANCE, 0.0, _UNKNOWN_VARIANCE, _UNKNOWN_VARIANCE, {})


def _line(action: int, samples: Sequence[Sample], risk: Mapping[tuple[int, int], float]) -> Line:
    groups: dict[int, list[Sample]] = defaultdict(list)
    for sample in samples:
        groups[sample.stratum].append(sample)
    bins: dict[int, tuple[float, float]] = {}
    within, freedom = 0.0, 0.0
    for stratum, group in groups.items():
        total = math.fsum(s.weight for s in group)
        mean = math.fsum(s.weight * s.difference for s in group) / total
        n = total * total / math.fsum(s.weight * s.weight for s in group)
        bins[stratum] = (mean, n)
        # Scaled so that weights of any unit give a variance of single labels.
        within += math.fsum(s.weight * (s.difference - mean) ** 2 for s in group) / total * n
        freedom += max(0.0, n - 1.0)
    noise = (within + _PRIOR_LABELS * min(_PRIOR_VARIANCE, within / freedom + 0.01 if freedom else 1.0)) / (
        freedom + _PRIOR_LABELS
    )
    n_all = math.fsum(n for _, n in bins.values())
    centre = math.fsum(n * risk.get((action, b), 0.5) for b, (_, n) in bins.items()) / n_all
    level = math.fsum(n * m for m, n in bins.values()) / n_all
    spread = math.fsum(n * (risk.get((action, b), 0.5) - centre) ** 2 for b, (_, n) in bins.items())
    joint = math.fsum(n * (risk.get((action, b), 0.5) - centre) * m for b, (m, n) in bins.items())
    # A ridge of one label a quarter away: with one bin there is no slope to be known.
    slope = min(0.0, joint / (spread + 0.0625))
    scatter = _LEAST_SCATTER
    if len(bins) > 2:
        misfit = math.fsum(
            n * (m - level - slope * (risk.get((action, b), 0.5) - centre)) ** 2 for b, (m, n) in bins.items()
        )
        scatter = max(_LEAST_SCATTER, (misfit - (len(bins) - 2) * noise) / n_all)
    return Line(centre, level, slope, noise / n_all, noise / (spread + 0.0625), scatter, noise, bins)
