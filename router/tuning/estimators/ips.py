"""Inverse propensity scoring, self-normalised and clipped.

Horvitz and Thompson (1952); self-normalised by variant as Swaminathan and Joachims (2015). Each answer counts by how
often the candidate sends a request of its stratum to its variant, over the probability that such an answer was seen.
That probability is the mean of all loggers' propensities over like requests (balanced: Agarwal et al., 2017): load, not
content, is what made the logging policy choose otherwise at the same risk, and an answer's quality does not hang on load.
"""

from __future__ import annotations

import math

from router.tuning.estimators.pooled import masses
from router.tuning.estimators.types import Cell, Estimate, Model, Setting, effective, interval, unseen_loss

CLIP = 20.0
"""No weight above this many times the mean weight of its variant."""


def estimate(setting: Setting) -> Estimate:
    """Return the weighted mean difference; a variant that the candidate uses and nobody saw makes the interval whole."""
    mean, variance, count, sizes = 0.0, setting.traffic_variance, 0, []
    for action, mass in masses(setting).items():
        mine, weights = weighted(setting, action)
        if not mine:
            return Estimate(0.0, -1.0, 1.0, count)
        average = math.fsum(w * c.total for w, c in zip(weights, mine, strict=True))
        size = effective([(w, c.labels) for w, c in zip(weights, mine, strict=True)])
        mean += mass * average
        spread = math.fsum(
            w * w * (c.squares - 2.0 * average * c.total + c.labels * average * average)
            for w, c in zip(weights, mine, strict=True)
        )
        spread = max(spread * size / max(1.0, size - 1.0), expected(setting.fitted.whole[action], mine, weights))
        variance += mass * mass * (spread + unseen_loss(size, mine) ** 2)
        # Strata that the candidate uses and nobody has labelled may hold anything.
        variance += math.fsum(uncovered(setting, action, mine).values()) ** 2 / 4
        count += sum(c.labels for c in mine)
        sizes.append(size)
    return interval(mean, math.sqrt(variance), setting.confidence, max(1.0, min(sizes, default=2.0) - 1.0), count)


def weighted(setting: Setting, action: int) -> tuple[list[Cell], list[float]]:
    """Return a variant's labelled cells in strata that the candidate uses, and each label's weight; all sum to 1."""
    cells = setting.fitted.cells.get(action, ())
    mine = [c for c in cells if setting.mass.get((action, c.stratum), 0.0) > 0.0]
    if not mine:
        return [], []
    raw = [c.weight * setting.mass[action, c.stratum] / max(1e-9, c.seen) for c in mine]
    labels = sum(c.labels for c in mine)
    most = CLIP * math.fsum(w * c.labels for w, c in zip(raw, mine, strict=True)) / labels
    raw = [min(w, most) for w in raw]
    total = math.fsum(w * c.labels for w, c in zip(raw, mine, strict=True))
    return mine, [w / total for w in raw]


def uncovered(setting: Setting, action: int, mine: list[Cell]) -> dict[tuple[int, int], float]:
    """Return the share of all requests that the candidate sends to each stratum of this variant without a label."""
    known = {c.stratum for c in mine}
    return {(a, b): m for (a, b), m in setting.mass.items() if a == action and b not in known}


def expected(model: Model, mine: list[Cell], weights: list[float]) -> float:
    """Return the variance of the weighted mean that the variant's labels lead one to expect.

    Few labels with much weight may by chance be without a loss: then their own scatter says too little.
    """
    return math.fsum(w * w * c.labels * model.noises[c.stratum] for w, c in zip(weights, mine, strict=True))
