"""The baseline that is hard to beat: longer is harder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from classifier.features import NAMES, Features

_LENGTH = NAMES.index("log_tokens")


@dataclass(frozen=True, slots=True)
class Length:
    """The logarithm of the longest turn's tokens (estimated)."""

    @classmethod
    def from_parameters(cls, parameters: Mapping[str, object]) -> Length:
        """Rebuild from an artefact; there are no parameters."""
        return cls()

    def score(self, features: Features) -> float:
        """Return the logarithm of the length."""
        return features.vector[_LENGTH]

    def contributions(self, features: Features) -> dict[str, float]:
        """Return the length alone."""
        return {"log_tokens": features.vector[_LENGTH]}
