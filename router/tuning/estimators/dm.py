"""Direct method: the outcome model, weighted by where the candidate sends requests."""

from __future__ import annotations

import math
from collections import defaultdict

from router.tuning.estimators.outcome import unknown
from router.tuning.estimators.types import Estimate, Line, Setting, effective, interval, unseen_loss


def estimate(setting: Setting) -> Estimate:
    """Return the model's mean over the candidate's requests.

    The error adds the bins' own noise, the line's (shared by all bins) and the bins' scatter around the line.
    """
    lines = setting.fitted.whole
    mean, variance = 0.0, 0.0
    for action in {a for a, _ in setting.mass}:
        line = lines.get(action) or unknown(action, setting.risk)
        part, error = of_action(action, line, setting)
        mean += part
        variance += error * error
    actions = {a for a, _ in setting.mass}
    used = [c for a in actions for c in setting.fitted.cells.get(a, ())]
    size = effective([(c.weight, c.labels) for c in used])
    moved = math.fsum(setting.mass.values())
    variance += (moved * unseen_loss(size, used)) ** 2 if moved else 0.0
    freedom = max(1.0, size - 2.0)
    return interval(mean, math.sqrt(variance), setting.confidence, freedom, sum(c.labels for c in used))


def of_action(action: int, line: Line, setting: Setting) -> tuple[float, float]:
    """Return one variant's part of the mean and its standard error."""
    mean, own, scatter, borrowed, lever = 0.0, 0.0, 0.0, 0.0, 0.0
    for (a, stratum), mass in setting.mass.items():
        if a != action:
            continue
        risk = setting.risk.get((a, stratum), line.centre)
        share = line.share(stratum)
        _, n = line.bins.get(stratum, (0.0, 0.0))
        mean += mass * line.value(stratum, risk)
        own += (mass * share) ** 2 * line.noise / n if n else 0.0
        scatter += (mass * (1.0 - share)) ** 2 * line.scatter
        borrowed += mass * (1.0 - share)
        lever += mass * (1.0 - share) * (risk - line.centre)
    shared = math.sqrt(borrowed**2 * line.level_variance + lever**2 * line.slope_variance)
    # Bins' means and the line come from the same labels: their errors add at worst.
    return mean, math.sqrt((math.sqrt(own) + shared) ** 2 + scatter)


def masses(setting: Setting) -> dict[int, float]:
    """Return the share of all requests by variant."""
    found: dict[int, float] = defaultdict(float)
    for (action, _), mass in setting.mass.items():
        found[action] += mass
    return dict(found)
