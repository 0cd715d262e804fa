"""The outcome model's mean over a candidate's requests, with the error of all that the labels leave open of it.

All labels of a variant speak for a candidate, not only those at its own risks; where labels are many, their own bins
decide, as with inverse propensities.
"""

from __future__ import annotations

import math
from collections import defaultdict

from router.tuning.estimators.types import Estimate, Setting, effective, interval, unseen_loss


def estimate(setting: Setting) -> Estimate:
    """Return the posterior mean with its credible interval."""
    mean, variance = 0.0, setting.traffic_variance
    actions = set(masses(setting))
    for action in actions:
        part, error = of_action(action, setting)
        mean += part
        variance += error * error
    used = [c for a in actions for c in setting.fitted.cells.get(a, ())]
    size = effective([(c.weight, c.labels) for c in used])
    moved = math.fsum(setting.mass.values())
    variance += (moved * unseen_loss(size, used)) ** 2 if moved else 0.0
    freedom = max(1.0, size - 2.0)
    return interval(mean, math.sqrt(variance), setting.confidence, freedom, sum(c.labels for c in used))


def of_action(action: int, setting: Setting) -> tuple[float, float]:
    """Return one variant's part of the mean and its standard error."""
    model = setting.fitted.whole[action]
    found: dict[int, float] = defaultdict(float)
    for (a, stratum), mass in setting.mass.items():
        if a == action:
            found[0] += mass
            found[1] += mass * (setting.risk[a, stratum] - model.centre)
            found[model.place[stratum]] += mass
    mean = math.fsum(x * model.mean[i] for i, x in found.items())
    variance = math.fsum(x * y * model.spread[i][j] for i, x in found.items() for j, y in found.items())
    return mean, math.sqrt(max(0.0, variance))


def masses(setting: Setting) -> dict[int, float]:
    """Return the share of all requests by variant."""
    found: dict[int, float] = defaultdict(float)
    for (action, _), mass in setting.mass.items():
        found[action] += mass
    return dict(found)
