"""Doubly robust: the outcome model, corrected by the weighted residuals of the answers that were seen.

Dudik, Langford and Li (2011). The model is cross-fitted: no answer corrects a model that was fitted to it. Right when
either the model or the propensities are right; the interval comes from the influence function's variance.
"""

from __future__ import annotations

import math

from router.tuning.estimators.ips import expected, uncovered, weighted
from router.tuning.estimators.pooled import masses, of_action
from router.tuning.estimators.types import Estimate, Setting, effective, interval, unseen_loss


def estimate(setting: Setting) -> Estimate:
    """Return the corrected mean. A variant with fewer than ten labels keeps the model's own, wider, error."""
    mean, variance, count, sizes = 0.0, setting.traffic_variance, 0, []
    for action, mass in masses(setting).items():
        model = setting.fitted.whole[action]
        part, error = of_action(action, setting)
        mean += part
        mine, weights = weighted(setting, action)
        labels = sum(c.labels for c in mine)
        count += labels
        size = effective([(w, c.labels) for w, c in zip(weights, mine, strict=True)])
        if size < 10.0:
            variance += error * error
            continue
        bias = math.fsum(w * c.residuals for w, c in zip(weights, mine, strict=True))
        mean += mass * bias
        spread = math.fsum(
            w * w * (c.residual_squares - 2.0 * bias * c.residuals + c.labels * bias * bias)
            for w, c in zip(weights, mine, strict=True)
        )
        spread = max(spread * size / (size - 1.0), expected(model, mine, weights))
        variance += mass * mass * (spread + unseen_loss(size, mine) ** 2)
        # Where nothing was labelled the model stands alone.
        _, alone = of_action(action, setting._replace(mass=uncovered(setting, action, mine)))
        variance += alone * alone
        sizes.append(size)
    freedom = max(1.0, min(sizes, default=float(max(2, setting.labels - 2))) - 1.0)
    return interval(mean, math.sqrt(variance), setting.confidence, freedom, count)
