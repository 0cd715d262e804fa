"""The same risk for every request: the base rate alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from classifier.features import Features


@dataclass(frozen=True, slots=True)
class Constant:
    """One score for all."""

    @classmethod
    def from_parameters(cls, parameters: Mapping[str, object]) -> Constant:
        """Rebuild from an artefact; there are no parameters."""
        return cls()

    def score(self, features: Features) -> float:
        """Return 0."""
        return 0.0

    def contributions(self, features: Features) -> dict[str, float]:
        """Return nothing: no feature counts."""
        return {}
