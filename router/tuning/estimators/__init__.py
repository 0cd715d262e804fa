"""Off-policy estimators by name: a new one is a file with `estimate` and a line here."""

from __future__ import annotations

from router.tuning.estimators import dm, dr, ips
from router.tuning.estimators.types import Estimate, Estimator, Sample, Setting

ESTIMATORS: dict[str, Estimator] = {
    "dr": dr.estimate,
    "ips": ips.estimate,
    "dm": dm.estimate,
}

__all__ = ["ESTIMATORS", "Estimate", "Estimator", "Sample", "Setting"]
