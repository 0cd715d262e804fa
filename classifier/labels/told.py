"""Labels that others give: a judge's verdict, users' feedback."""

from __future__ import annotations

from classifier.labels.base import Comparison, Loss


def judge(pair: Comparison) -> Loss | None:
    """Return the judge's verdict; without one, None."""
    return _told(pair.judged)


def feedback(pair: Comparison) -> Loss | None:
    """Return the quality that users say was lost; without feedback, None."""
    return _told(pair.feedback)


def _told(lost: float | None) -> Loss | None:
    return None if lost is None else Loss(1.0, 1.0 - lost, lost > 0, lost)
