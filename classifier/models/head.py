"""A small neural head on the cheap features, and on a sentence encoder's vector where one is configured.

PyTorch trains it (`classifier.heads`, extra `head`); the artefact holds its weights as numbers, and plain Python serves it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import tanh
from operator import mul

from classifier.encoders import Encoder
from classifier.features import NAMES, Features
from classifier.models.base import ModelError, number, numbers, per_feature
from classifier.models.embedding import encoder_of

_MOST_UNITS = 512


@dataclass(frozen=True, slots=True)
class Head:
    """`bias + weights . tanh(hidden . x)`, `x` the features clipped to their range and standardised, then the vector."""

    encoder: Encoder | None
    centre: tuple[float, ...]
    scale: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    hidden: tuple[tuple[float, ...], ...]
    """Per unit: one weight per input."""
    hidden_bias: tuple[float, ...]
    weights: tuple[float, ...]
    """One per unit."""
    bias: float
    vector_scale: float
    """Of the encoder's vector, whose numbers are far smaller than standardised features."""

    @classmethod
    def from_parameters(cls, parameters: Mapping[str, object], encoder: Encoder | None = None) -> Head:
        """Rebuild from an artefact. Raises `ModelError`: also for an encoder that is not the one it was trained on."""
        if encoder is None and parameters.get("folder"):
            encoder = encoder_of(parameters)
        if "fingerprint" not in parameters:
            encoder = None
        listed = parameters.get("hidden")
        if not isinstance(listed, list) or not 0 < len(listed) <= _MOST_UNITS:
            raise ModelError(f"parameter 'hidden': expected 1 to {_MOST_UNITS} lists of numbers")
        inputs = len(NAMES) + (encoder.size if encoder else 0)
        hidden = tuple(numbers({"hidden": row}, "hidden", inputs) for row in listed)
        scale = per_feature(parameters, "scale")
        if min(scale) <= 0:
            raise ModelError("parameter 'scale': must be above 0")
        return cls(
            encoder,
            per_feature(parameters, "centre"),
            scale,
            per_feature(parameters, "low"),
            per_feature(parameters, "high"),
            hidden,
            numbers(parameters, "hidden_bias", len(hidden)),
            numbers(parameters, "weights", len(hidden)),
            number(parameters, "bias"),
            number(parameters, "vector_scale"),
        )

    def score(self, features: Features) -> float:
        """Return the head's value."""
        inputs = self._inputs(features)
        units = [
            tanh(sum(map(mul, row, inputs), start)) for row, start in zip(self.hidden, self.hidden_bias, strict=True)
        ]
        return sum(map(mul, self.weights, units), self.bias)

    def contributions(self, features: Features) -> dict[str, float]:
        """Return each feature's part: how far the score moves when that feature alone takes its mean; the vector's as one."""
        inputs, score = self._inputs(features), self.score(features)
        sums = [sum(map(mul, row, inputs), start) for row, start in zip(self.hidden, self.hidden_bias, strict=True)]

        def without(places: range) -> float:
            moved = [
                total - sum(row[i] * inputs[i] for i in places) for row, total in zip(self.hidden, sums, strict=True)
            ]
            return sum(map(mul, self.weights, map(tanh, moved)), self.bias)

        parts = {name: score - without(range(at, at + 1)) for at, name in enumerate(NAMES)}
        if self.encoder is not None:
            parts["embedding"] = score - without(range(len(NAMES), len(inputs)))
        return parts

    def _inputs(self, features: Features) -> list[float]:
        found = [
            (min(max(value, low), high) - middle) / spread
            for value, low, high, middle, spread in zip(
                features.vector, self.low, self.high, self.centre, self.scale, strict=True
            )
        ]
        if self.encoder is not None:
            found += [self.vector_scale * float(v) for v in self.encoder.encode(features.conversation.text).tolist()]
        return found
