"""Labels: what "worse than full precision" means, one function a file, one line each in `LABELS`."""

from __future__ import annotations

from collections.abc import Mapping

from classifier.labels.agreement import agreement
from classifier.labels.base import Comparison, Label, Loss
from classifier.labels.divergence import divergence
from classifier.labels.task import task
from classifier.labels.told import feedback, judge

LABELS: Mapping[str, Label] = {
    "divergence": divergence,
    "agreement": agreement,
    "task": task,
    "judge": judge,
    "feedback": feedback,
}
"""Name to label."""

__all__ = ["LABELS", "Comparison", "Label", "Loss"]
