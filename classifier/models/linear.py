"""A linear model on the cheap features, each clipped to the range seen in training.

Clipping bounds what any one feature can do: nobody can push a score further than the training data reach.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from classifier.features import NAMES, Features
from classifier.models.base import ModelError, number, per_feature


@dataclass(frozen=True, slots=True)
class Linear:
    """`intercept + sum(weight * (clip(feature, low, high) - centre))`."""

    intercept: float
    weights: tuple[float, ...]
    centre: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    _rows: tuple[tuple[float, float, float], ...]
    _constant: float

    @classmethod
    def from_parameters(cls, parameters: Mapping[str, object]) -> Linear:
        """Rebuild from an artefact. Raises `ModelError`."""
        weights = per_feature(parameters, "weights")
        centre = per_feature(parameters, "centre")
        low = per_feature(parameters, "low")
        high = per_feature(parameters, "high")
        for name, least, most in zip(NAMES, low, high, strict=True):
            if least > most:
                raise ModelError(f"feature {name!r}: low {least} is above high {most}")
        intercept = number(parameters, "intercept")
        constant = intercept - sum(weight * middle for weight, middle in zip(weights, centre, strict=True))
        return cls(intercept, weights, centre, low, high, tuple(zip(weights, low, high, strict=True)), constant)

    def score(self, features: Features) -> float:
        """Return the linear score."""
        total = self._constant
        for value, (weight, low, high) in zip(features.vector, self._rows, strict=True):
            total += weight * (low if value < low else high if value > high else value)
        return total

    def contributions(self, features: Features) -> dict[str, float]:
        """Return each feature's exact part of the score."""
        return {
            name: weight * (min(max(value, low), high) - middle)
            for name, value, weight, middle, low, high in zip(
                NAMES, features.vector, self.weights, self.centre, self.low, self.high, strict=True
            )
        }
