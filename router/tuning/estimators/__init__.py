"""Off-policy estimators by name: a new one is a file with `estimate` and a line here."""

from __future__ import annotations

from router.tuning.estimators import dr, ips, pooled
from router.tuning.estimators.types import Estimate, Estimator, Sample, Setting

ESTIMATORS: dict[str, Estimator] = {
    "pooled": pooled.estimate,
    "dr": dr.estimate,
    "ips": ips.estimate,
}
DECIDES = "pooled"
"""Whose interval thresholds are chosen by."""

__all__ = ["DECIDES", "ESTIMATORS", "Estimate", "Estimator", "Sample", "Setting"]
