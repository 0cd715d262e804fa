"""Watching whether traffic is still what the classifier was made for: one request in N, counted by bins.

Each worker shows its counts as gauges, which add up over the workers; from the sums each computes the same index
(`classifier.drift`). A window has two halves: the older one goes when the newer one is full.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from classifier import Classifier
from classifier.drift import Drift, Reference, psi
from classifier.models import ModelError
from classifier.risks import Risks
from classifier.scoring import Trained
from router.config.telemetry import DriftConfig


class DriftWatch:
    """One worker's counts. `clock` gives monotonic seconds."""

    def __init__(self, scorer: Trained, reference: Reference, config: DriftConfig, clock: Callable[[], float]) -> None:
        self._scorer = scorer
        self.reference = reference
        self._one_in = config.one_in
        self._half_s = config.window_s / 2
        self._clock = clock
        self._older, self._newer = Drift(reference), Drift(reference)
        self._turn = 0
        self._began = clock()

    def saw(self, request: Mapping[str, object], risks: Mapping[str, float]) -> None:
        """Count one request in N; `risks` as the classifier gave them, empty where it was not asked."""
        if not risks:
            return
        self._turn += 1
        if self._turn < self._one_in:
            return
        self._turn = 0
        self._rotate()
        self._newer.add(self._scorer.features(request), Risks(risks, 0.0, ""))

    def counts(self) -> tuple[int, dict[str, list[int]]]:
        """Return the window's requests, and their counts by name and bin."""
        self._rotate()
        both = Drift(self.reference)
        both.merge(self._older)
        both.merge(self._newer)
        return both.requests, both.counts

    def _rotate(self) -> None:
        now = self._clock()
        while now - self._began >= self._half_s:
            self._older, self._newer = self._newer, Drift(self.reference)
            self._began = max(self._began + self._half_s, now - 2 * self._half_s)


def indices(counts: Mapping[str, list[float]], reference: Reference) -> dict[str, float]:
    """Return the stability index by name, of counts that may be several workers'."""
    return {
        name: psi([round(n) for n in bins], reference.shares[name])
        for name, bins in counts.items()
        if name in reference.shares and len(bins) == len(reference.shares[name])
    }


def build_drift(scorer: Classifier, config: DriftConfig, clock: Callable[[], float]) -> DriftWatch | None:
    """Return a watch; None where it is off, or where the classifier says nothing of what it was made for."""
    if config.one_in == 0 or not isinstance(scorer, Trained):
        return None
    content = scorer.artefact.content.get("reference")
    if not isinstance(content, Mapping):
        return None
    try:
        return DriftWatch(scorer, Reference.from_content(content), config, clock)
    except ModelError:
        # An older artefact knows other features.
        return None


__all__ = ["DriftWatch", "build_drift", "indices"]
