"""Right or wrong, where the prompt has a checkable answer."""

from __future__ import annotations

from classifier.labels.base import Comparison, Loss
from classifier.labels.checks import CHECKS


def task(pair: Comparison) -> Loss | None:
    """Return the loss of a checkable task: worse where full precision is right and the variant wrong."""
    check = CHECKS.get(pair.task)
    if check is None or pair.text is None or (not pair.accepted and pair.task not in ("code", "json")):
        return None
    full, own = (float(check(text, pair.accepted, pair.schema)) for text in (pair.full_text, pair.text))
    return Loss(full, own, own < full, full - own)
