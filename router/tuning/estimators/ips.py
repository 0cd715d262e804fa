"""Inverse propensity scoring, self-normalised and clipped.

Horvitz and Thompson (1952); self-normalised by variant as Swaminathan and Joachims (2015). Each answer counts by how
often the candidate sends a request of its stratum to its variant, over the probability that such an answer was seen.
That probability is the mean of all loggers' propensities over like requests (balanced: Agarwal et al., 2017): load, not
content, is what made the logging policy choose otherwise at the same risk, and an answer's quality does not hang on load.
"""

from __future__ import annotations

import math

from router.tuning.estimators.dm import masses
from router.tuning.estimators.types import Estimate, Sample, Setting, effective, interval, unseen_loss

CLIP = 20.0
"""No weight above this many times the mean weight of its variant."""


def estimate(setting: Setting) -> Estimate:
    """Return the weighted mean difference; a variant that the candidate uses and nobody saw makes the interval whole."""
    mean, variance, count, sizes = 0.0, 0.0, 0, []
    for action, mass in masses(setting).items():
        mine, weights = weighted(setting, action)
        if not mine:
            return Estimate(0.0, -1.0, 1.0, count)
        average = math.fsum(w * s.difference for w, s in zip(weights, mine, strict=True))
        size = effective(weights)
        mean += mass * average
        spread = math.fsum((w * (s.difference - average)) ** 2 for w, s in zip(weights, mine, strict=True))
        variance += mass * mass * (spread * size / max(1.0, size - 1.0) + unseen_loss(size, mine) ** 2)
        # Strata that the candidate uses and nobody has labelled may hold anything.
        variance += uncovered(setting, action, mine) ** 2 / 4
        count += len(mine)
        sizes.append(size)
    return interval(mean, math.sqrt(variance), setting.confidence, max(1.0, min(sizes, default=2.0) - 1.0), count)


def weighted(setting: Setting, action: int) -> tuple[list[Sample], list[float]]:
    """Return a variant's labelled answers in strata that the candidate uses, and their weights, which sum to 1."""
    mine = [s for s in setting.samples if s.action == action and setting.mass.get((action, s.stratum), 0.0) > 0.0]
    if not mine:
        return [], []
    raw = [s.weight * setting.mass[action, s.stratum] / max(1e-9, s.seen) for s in mine]
    most = CLIP * math.fsum(raw) / len(raw)
    raw = [min(w, most) for w in raw]
    total = math.fsum(raw)
    return mine, [w / total for w in raw]


def uncovered(setting: Setting, action: int, mine: list[Sample]) -> float:
    """Return the share of all requests that the candidate sends to strata of this variant without a label."""
    known = {s.stratum for s in mine}
    return math.fsum(m for (a, stratum), m in setting.mass.items() if a == action and stratum not in known)
